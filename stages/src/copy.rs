//! Copies of many numbers.

use crate::cpu::parts::{By, cut};

/// Copies numbers to a slice of the same length. The [threads](crate::threads) of the current thread share
/// the work.
///
/// ```
/// let mut to = [0.0; 3];
/// pipewright_stages::copy(&[1.0, 2.0, 3.0], &mut to);
/// assert_eq!(to, [1.0, 2.0, 3.0]);
/// ```
///
/// # Panics
/// When the lengths differ.
pub fn copy(from: &[f32], to: &mut [f32]) {
    assert_eq!(from.len(), to.len(), "a copy is as long as what is copied");
    cut((By(from, 1), By(to, 1)), 1, |_, (from, to)| {
        to.copy_from_slice(from)
    });
}
