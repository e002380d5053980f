//! Buffers that are used again, so that a steady training step allocates nothing.
//!
//! Each thread (so each rank) has a pool of its own. No other thread touches it, so it needs no lock. A
//! buffer remembers its pool. A buffer that is dropped on another thread, such as a wire sent to another
//! rank, goes back to its pool through a lock-free queue.

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Weak};
use std::thread::LocalKey;

use aligned_vec::AVec;
use crossbeam_queue::ArrayQueue;
use half::bf16;

use crate::error::OutOfMemory;

/// How many buffers can wait in a thread's queue of returned buffers. One more is freed. A step returns a few
/// for each micro-batch.
const ON_THE_WAY: usize = 4096;

/// Numbers in memory. Clones share them, and writing to shared numbers copies them first. The last owner
/// returns the memory to its pool.
#[derive(Clone)]
pub(crate) struct Buffer<T: Number = f32>(Option<Arc<Block<T>>>);

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

struct Block<T> {
    /// They start at a cache line, so that reads and writes of whole registers never touch two lines.
    numbers: AVec<T>,
    /// The queue through which the block returns to its pool.
    home: Weak<Home<T>>,
}

type Home<T> = ArrayQueue<Arc<Block<T>>>;

/// Unused values of one thread, by size.
pub(crate) struct Shelves<V>(RefCell<BTreeMap<usize, Vec<V>>>);

impl<V> Shelves<V> {
    /// Empty shelves.
    pub(crate) const fn new() -> Self {
        Self(RefCell::new(BTreeMap::new()))
    }

    /// The value of this size that was put there last.
    pub(crate) fn take(&self, size: usize) -> Option<V> {
        self.0.borrow_mut().get_mut(&size)?.pop()
    }

    /// Puts a value of this size there.
    pub(crate) fn put(&self, size: usize, what: V) {
        self.0.borrow_mut().entry(size).or_default().push(what);
    }
}

/// One thread's unused blocks.
pub(crate) struct Pool<T> {
    /// By length.
    shelves: Shelves<Arc<Block<T>>>,
    /// Blocks that other threads have dropped. Only the pool keeps the queue alive, so a block that returns
    /// after the thread has ended is freed.
    home: OnceCell<Arc<Home<T>>>,
}

impl<T: Number> Pool<T> {
    const fn new() -> Self {
        Self {
            shelves: Shelves::new(),
            home: OnceCell::new(),
        }
    }

    /// `None` if there is too little memory.
    fn take(&self, count: usize) -> Option<Arc<Block<T>>> {
        let home = self.home.get_or_init(|| Arc::new(ArrayQueue::new(ON_THE_WAY)));
        self.shelves.take(count).or_else(|| {
            while let Some(block) = home.pop() {
                self.put(block);
            }
            self.shelves.take(count).or_else(|| {
                Some(Arc::new(Block {
                    numbers: allocate(count)?,
                    home: Arc::downgrade(home),
                }))
            })
        })
    }

    fn put(&self, block: Arc<Block<T>>) {
        self.shelves.put(block.numbers.len(), block);
    }

    fn owns(&self, block: &Block<T>) -> bool {
        self.home
            .get()
            .is_some_and(|home| Arc::as_ptr(home) == block.home.as_ptr())
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
        T::pool()
            .with(|pool| pool.take(count))
            .map(|block| Self(Some(block)))
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
        self.0.as_ref().expect("there until it is dropped")
    }
}

impl<T: Number> From<&[T]> for Buffer<T> {
    fn from(numbers: &[T]) -> Self {
        let mut copy = Self::pooled(numbers.len());
        copy.copy_from_slice(numbers);
        copy
    }
}

impl<T: Number> Drop for Buffer<T> {
    fn drop(&mut self) {
        // If two threads drop a block at the same moment, neither may see itself as the last owner. Then the
        // block is freed instead of returned.
        let Some(block) = self.0.take().filter(|block| Arc::strong_count(block) == 1) else {
            return;
        };
        // While a thread ends, its pool may be gone already.
        let own = T::pool().try_with(|pool| pool.owns(&block)).unwrap_or(false);
        if own {
            T::pool().with(|pool| pool.put(block));
        } else if let Some(home) = block.home.upgrade() {
            // If the queue is full, the block is freed.
            let _ = home.push(block);
        }
    }
}

impl<T: Number> Deref for Buffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.block().numbers
    }
}

impl<T: Number> DerefMut for Buffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        if Arc::strong_count(self.block()) > 1 {
            *self = Self::from(&self[..]);
        }
        let block = self.0.as_mut().and_then(Arc::get_mut);
        &mut block.expect("the block has no other owner now").numbers
    }
}
