//! The numbers of a parameter.

use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::slice::{Iter, IterMut};
use std::sync::{Arc, OnceLock};

use bytemuck::allocation::try_zeroed_slice_box;

use crate::error::{OutOfMemory, Purpose};

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
    memory: Memory,
    start: usize,
    count: usize,
}

enum Memory {
    Own(Box<[f32]>),
    /// Zeros, from when somebody first looks at them.
    Later(OnceLock<Box<Numbers>>),
    Lent(Arc<dyn AsRef<[f32]> + Send + Sync>),
}

impl Numbers {
    /// Some of the numbers that somebody else holds, such as a file in memory. They are not copied before
    /// they are changed.
    ///
    /// # Panics
    /// When the holder does not have them.
    pub fn lent(holder: Arc<dyn AsRef<[f32]> + Send + Sync>, range: Range<usize>) -> Self {
        let count = holder.as_ref().as_ref()[range.clone()].len();
        Self { memory: Memory::Lent(holder), start: range.start, count }
    }

    /// `count` zeros, which take no memory before somebody looks at them. Memory that was in use before is
    /// filled with zeros when it is given again, and so it counts, also if nobody ever looks.
    pub(crate) fn later(count: usize) -> Self {
        Self { memory: Memory::Later(OnceLock::new()), start: 0, count }
    }

    /// None.
    pub(crate) fn none() -> Self {
        Self::zeros(0)
    }

    /// `count` zeros.
    ///
    /// # Panics
    /// When there is too little memory.
    pub(crate) fn zeros(count: usize) -> Self {
        let room = if count == 0 { 0 } else { count + LINE - 1 };
        let memory = try_zeroed_slice_box::<f32>(room)
            .unwrap_or_else(|()| panic!("{}", OutOfMemory::on_host::<f32>(count).wanted_for(Purpose::Stage)));
        let start = memory.as_ptr().align_offset(LINE * size_of::<f32>());
        let start = start.min(room - count);
        let memory = Memory::Own(memory);
        Self { memory, start, count }
    }
}

impl Default for Numbers {
    fn default() -> Self {
        Self::none()
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
        let memory = match &self.memory {
            Memory::Own(memory) => memory,
            Memory::Later(zeros) => return zeros.get_or_init(|| Box::new(Self::zeros(self.count))),
            Memory::Lent(holder) => holder.as_ref().as_ref(),
        };
        &memory[self.start..][..self.count]
    }
}

impl DerefMut for Numbers {
    #[inline]
    fn deref_mut(&mut self) -> &mut [f32] {
        match &mut self.memory {
            Memory::Own(_) => {}
            Memory::Later(zeros) => {
                *self = zeros.take().map_or_else(|| Self::zeros(self.count), |zeros| *zeros);
            }
            Memory::Lent(_) => *self = self.clone(),
        }
        match &mut self.memory {
            Memory::Own(memory) => &mut memory[self.start..][..self.count],
            Memory::Later(_) | Memory::Lent(_) => unreachable!("they are our own now"),
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_that_nobody_looks_at_take_no_memory() {
        let is_there = |numbers: &Numbers| match &numbers.memory {
            Memory::Later(zeros) => zeros.get().is_some(),
            _ => true,
        };
        let mut numbers = Numbers::later(3);
        assert_eq!((numbers.count, is_there(&numbers)), (3, false));
        assert_eq!(numbers[..], [0.0; 3]);
        let place = numbers.as_ptr();
        numbers[1] = 5.0;
        assert_eq!((numbers.as_ptr(), &numbers[..]), (place, &[0.0, 5.0, 0.0][..]));
        let mut changed_first = Numbers::later(2);
        changed_first[0] = 1.0;
        assert_eq!(changed_first[..], [1.0, 0.0]);
    }

    #[test]
    fn lent_numbers_are_copied_before_they_are_changed() {
        let holder = Arc::new(vec![1.0, 2.0, 3.0, 4.0]);
        let mut numbers = Numbers::lent(Arc::clone(&holder) as _, 1..3);
        assert_eq!(numbers.as_ptr(), holder[1..].as_ptr());
        numbers[0] = 5.0;
        assert_eq!((&numbers[..], &holder[..]), (&[5.0, 3.0][..], &[1.0, 2.0, 3.0, 4.0][..]));
    }
}
