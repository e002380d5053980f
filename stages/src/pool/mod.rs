//! Buffers that are used again, so that a steady training step allocates nothing.
//!
//! Each thread (so each rank) has a pool of its own. No other thread touches it, so it needs no lock. A
//! buffer remembers its pool. A buffer that is dropped on another thread, such as a wire sent to another
//! rank, goes back to its pool through a lock-free queue.

pub(crate) mod home;
pub(crate) mod shelves;
pub(crate) mod sizes;
mod sync;

use std::ops::{Deref, DerefMut};
use std::thread::LocalKey;

use aligned_vec::AVec;
use half::bf16;

use crate::error::OutOfMemory;
use home::{drop_block, share_block};
use sync::Arc;

pub(crate) use shelves::Shelves;
pub(crate) use sizes::Sizes;

/// Memory for numbers. They start at a cache line, so that reads and writes of whole registers never touch
/// two lines.
type Block<T> = home::Block<AVec<T>>;

/// One thread's unused memory.
pub(crate) type Pool<T> = home::Pool<AVec<T>>;

/// Numbers in memory. Clones share them, and writing to shared numbers copies them first. The last owner
/// returns the memory to its pool.
pub(crate) struct Buffer<T: Number = f32> {
    /// There until it is dropped.
    block: Option<Arc<Block<T>>>,
    /// How many of the block's numbers are used.
    count: usize,
}

/// A type of number that tensors hold. Every thread has a pool for each type.
pub(crate) trait Number: Copy + Default + 'static {
    /// The current thread's pool.
    fn pool() -> &'static LocalKey<Pool<Self>>;
}

thread_local! {
    static NUMBERS: Pool<f32> = const { Pool::new() };
    static HALVES: Pool<bf16> = const { Pool::new() };
    static IDS: Pool<u32> = const { Pool::new() };
}

impl Number for f32 {
    fn pool() -> &'static LocalKey<Pool<Self>> {
        &NUMBERS
    }
}

impl Number for bf16 {
    fn pool() -> &'static LocalKey<Pool<Self>> {
        &HALVES
    }
}

impl Number for u32 {
    fn pool() -> &'static LocalKey<Pool<Self>> {
        &IDS
    }
}

/// `count` numbers, all 0. They start at a cache line, like all operands of products. `None` if there is too
/// little memory.
pub(crate) fn allocate<T: Copy + Default>(count: usize) -> Option<AVec<T>> {
    let mut numbers = AVec::new(0);
    numbers.try_reserve_exact(count).ok()?;
    numbers.resize(count, T::default());
    Some(numbers)
}

impl<T: Number> Buffer<T> {
    /// `count` numbers from the current thread's pool. Their contents are unspecified. `None` if there is too
    /// little memory.
    pub(crate) fn try_pooled(count: usize) -> Option<Self> {
        Self::try_pooled_in(count, count)
    }

    /// As [`Buffer::try_pooled`], in memory with room for `room` numbers, so that the same memory serves
    /// other counts too.
    pub(crate) fn try_pooled_in(count: usize, room: usize) -> Option<Self> {
        debug_assert!(count <= room, "the numbers fit into the room");
        let block = T::pool().with(|pool| pool.take(room, || allocate(room)));
        block.map(|block| Self { block: Some(block), count })
    }

    /// As [`Buffer::try_pooled`].
    ///
    /// # Panics
    /// When there is too little memory.
    pub(crate) fn pooled(count: usize) -> Self {
        Self::try_pooled(count).unwrap_or_else(|| panic!("{}", OutOfMemory::on_host::<T>(count)))
    }

    /// An identity of the memory: equal for two buffers exactly if they share memory.
    pub(crate) fn address(&self) -> usize {
        Arc::as_ptr(self.block()) as usize
    }

    fn block(&self) -> &Arc<Block<T>> {
        self.block.as_ref().expect("there until it is dropped")
    }
}

impl<T: Number> From<&[T]> for Buffer<T> {
    fn from(numbers: &[T]) -> Self {
        let mut copy = Self::pooled(numbers.len());
        copy.copy_from_slice(numbers);
        copy
    }
}

impl<T: Number> Clone for Buffer<T> {
    fn clone(&self) -> Self {
        Self { block: Some(share_block(self.block())), count: self.count }
    }
}

impl<T: Number> Drop for Buffer<T> {
    fn drop(&mut self) {
        let mut block = self.block.take();
        let mut give = |own: Option<&Pool<T>>| block.take().map(|block| drop_block(block, own));
        // While a thread ends, its pool may be gone already.
        if T::pool().try_with(|pool| give(Some(pool))).is_err() {
            give(None);
        }
    }
}

impl<T: Number> Deref for Buffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.block().memory[..self.count]
    }
}

impl<T: Number> DerefMut for Buffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        if Arc::strong_count(self.block()) > 1 {
            *self = Self::from(&self[..]);
        }
        let block = self.block.as_mut().and_then(Arc::get_mut);
        &mut block.expect("the block has no other owner now").memory[..self.count]
    }
}
