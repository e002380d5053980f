//! The numbers of a parameter.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::slice::{Iter, IterMut};

use bytemuck::allocation::try_zeroed_slice_box;

use crate::error::OutOfMemory;

/// The numbers in a line of the cache.
const LINE: usize = 16;

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
// They begin with a line of the cache, as everything that is multiplied. The system gives pages of zeros when
// they are first written, so a gradient that nobody adds to needs no memory.
pub struct Numbers {
    memory: Box<[f32]>,
    start: usize,
    count: usize,
}

impl Numbers {
    /// None.
    pub(crate) fn none() -> Self {
        Self::zeros(0)
    }

    /// So many zeros.
    ///
    /// # Panics
    /// When there is too little memory.
    pub(crate) fn zeros(count: usize) -> Self {
        let room = if count == 0 { 0 } else { count + LINE - 1 };
        let memory = try_zeroed_slice_box::<f32>(room).unwrap_or_else(|()| {
            let lasting = true;
            let error = OutOfMemory::on_host::<f32>(count);
            panic!("{}", OutOfMemory { lasting, ..error })
        });
        let start = memory.as_ptr().align_offset(LINE * size_of::<f32>());
        let start = start.min(room - count);
        Self { memory, start, count }
    }
}

impl Clone for Numbers {
    fn clone(&self) -> Self {
        let mut copy = Self::zeros(self.count);
        copy.copy_from_slice(self);
        copy
    }
}

impl PartialEq for Numbers {
    fn eq(&self, other: &Self) -> bool {
        self[..] == other[..]
    }
}

impl Deref for Numbers {
    type Target = [f32];

    #[inline]
    fn deref(&self) -> &[f32] {
        &self.memory[self.start..][..self.count]
    }
}

impl DerefMut for Numbers {
    #[inline]
    fn deref_mut(&mut self) -> &mut [f32] {
        &mut self.memory[self.start..][..self.count]
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
        self[..].fmt(f)
    }
}
