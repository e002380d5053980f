//! Copies of much.

use crate::cpu::parts::{By, cut};

/// Copies numbers or bytes to a slice of the same length. The [threads](crate::threads) of the current thread
/// share the work.
///
/// ```
/// let mut to = [0.0; 3];
/// pipewright_stages::copy(&[1.0, 2.0, 3.0], &mut to);
/// assert_eq!(to, [1.0, 2.0, 3.0]);
/// ```
///
/// # Panics
/// When the lengths differ.
pub fn copy<T: Copy + Send + Sync>(from: &[T], to: &mut [T]) {
    assert_eq!(from.len(), to.len(), "a copy is as long as what is copied");
    let number = (size_of::<f32>() / size_of::<T>().max(1)).max(1);
    cut((By(from, number), By(to, number)), 1, |_, (from, to)| {
        to.copy_from_slice(from)
    });
}
