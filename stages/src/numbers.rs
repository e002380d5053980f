//! The numbers of a parameter.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::slice::{Iter, IterMut};

use aligned_vec::AVec;

use crate::error::OutOfMemory;
use crate::pool;

/// The numbers of a [`Parameter`](crate::Parameter), row-major: a slice of `f32` to read and to write.
///
/// ```
/// use pipewright_stages::{Init, Parameter};
///
/// let mut slopes = Parameter::new("slopes", &[3], Init::Ones, 0);
/// for (grad, slope) in slopes.grad.iter_mut().zip(&slopes.value) {
///     *grad += 2.0 * slope;
/// }
/// assert_eq!(slopes.grad[..], [2.0, 2.0, 2.0]);
/// ```
// They begin with a line of the cache, as everything that is multiplied.
#[derive(Clone, PartialEq)]
pub struct Numbers(AVec<f32>);

impl Numbers {
    /// None.
    pub(crate) fn none() -> Self {
        Self(AVec::new(0))
    }

    /// So many zeros.
    ///
    /// # Panics
    /// When there is too little memory.
    pub(crate) fn zeros(count: usize) -> Self {
        let numbers = pool::allocate(count);
        Self(numbers.unwrap_or_else(|| {
            let lasting = true;
            let error = OutOfMemory::on_host::<f32>(count);
            panic!("{}", OutOfMemory { lasting, ..error })
        }))
    }
}

impl Deref for Numbers {
    type Target = [f32];

    #[inline]
    fn deref(&self) -> &[f32] {
        &self.0
    }
}

impl DerefMut for Numbers {
    #[inline]
    fn deref_mut(&mut self) -> &mut [f32] {
        &mut self.0
    }
}

impl AsRef<[f32]> for Numbers {
    fn as_ref(&self) -> &[f32] {
        self
    }
}

impl AsMut<[f32]> for Numbers {
    fn as_mut(&mut self) -> &mut [f32] {
        self
    }
}

impl<'a> IntoIterator for &'a Numbers {
    type Item = &'a f32;
    type IntoIter = Iter<'a, f32>;

    #[inline]
    fn into_iter(self) -> Iter<'a, f32> {
        self.iter()
    }
}

impl<'a> IntoIterator for &'a mut Numbers {
    type Item = &'a mut f32;
    type IntoIter = IterMut<'a, f32>;

    #[inline]
    fn into_iter(self) -> IterMut<'a, f32> {
        self.iter_mut()
    }
}

impl fmt::Debug for Numbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
