//! Who has a block of memory: those that share it, the pool that made it, or the queue in which it comes
//! home. `tests/interleavings/` runs this file with every order of what threads do, and with counts and a
//! queue that `loom` can look into. So it takes those from the module above.

use std::cell::OnceCell;

use super::shelves::Shelves;
use super::sync::Ordering::{AcqRel, Relaxed};
use super::sync::{Arc, ArrayQueue, AtomicUsize, Weak};

/// How many blocks can wait in a thread's queue of returned blocks. One more is freed. A step returns a few
/// for each micro-batch.
const ON_THE_WAY: usize = 4096;

/// Some memory of a pool.
pub(crate) struct Block<M> {
    pub(super) memory: M,
    size: usize,
    /// How many share it. The count of the `Arc` does not say who is the last one: two threads that look at
    /// it before they drop theirs may both see the other.
    owners: AtomicUsize,
    /// The queue through which the block returns to its pool.
    home: Weak<Home<M>>,
}

type Home<M> = ArrayQueue<Arc<Block<M>>>;

/// One thread's unused blocks.
pub(crate) struct Pool<M> {
    shelves: Shelves<Arc<Block<M>>>,
    /// Blocks that other threads have dropped. Only the pool keeps the queue alive, so a block that returns
    /// after the thread has ended is freed.
    home: OnceCell<Arc<Home<M>>>,
}

impl<M> Pool<M> {
    pub(super) const fn new() -> Self {
        Self { shelves: Shelves::new(), home: OnceCell::new() }
    }

    /// An unused block of this size. If there is none, a larger one where the pool has enough memory, or else
    /// a new one, which gets its memory by `make`, if that gives any.
    pub(super) fn take(&self, size: usize, make: impl FnOnce() -> Option<M>) -> Option<Arc<Block<M>>> {
        let home = self.home.get_or_init(|| Arc::new(ArrayQueue::new(ON_THE_WAY)));
        let exact = || self.unused(|| self.shelves.take(size));
        exact().or_else(|| {
            while let Some(block) = home.pop() {
                self.put(block);
            }
            exact().or_else(|| self.unused(|| self.shelves.take_larger(size))).or_else(|| {
                if self.shelves.would_be_too_much(size) {
                    self.shelves.clear();
                }
                let owners = AtomicUsize::new(1);
                let block = Arc::new(Block { memory: make()?, size, owners, home: Arc::downgrade(home) });
                self.shelves.made(size);
                Some(block)
            })
        })
    }

    /// A block from the shelves.
    fn unused(&self, take: impl Fn() -> Option<Arc<Block<M>>> + Copy) -> Option<Arc<Block<M>>> {
        let mut block = take()?;
        if Arc::get_mut(&mut block).is_none() {
            // A thread that has just given it up has not dropped its `Arc` yet. Perhaps another one is free.
            let other = self.unused(take);
            self.put(block);
            return other;
        }
        block.owners.store(1, Relaxed);
        Some(block)
    }

    fn put(&self, block: Arc<Block<M>>) {
        self.shelves.put(block.size, block);
    }

    fn owns(&self, block: &Block<M>) -> bool {
        self.home.get().is_some_and(|home| Arc::as_ptr(home) == block.home.as_ptr())
    }
}

/// The same block, for one more who shares it.
pub(super) fn share_block<M>(block: &Arc<Block<M>>) -> Arc<Block<M>> {
    block.owners.fetch_add(1, Relaxed);
    Arc::clone(block)
}

/// One of those that share a block drops it. The last one returns it to the pool that made it. `own`: the
/// current thread's pool, if it is still there.
pub(super) fn drop_block<M>(block: Arc<Block<M>>, own: Option<&Pool<M>>) {
    if block.owners.fetch_sub(1, AcqRel) > 1 {
        return;
    }
    if let Some(pool) = own.filter(|pool| pool.owns(&block)) {
        pool.put(block);
    } else if let Some(home) = block.home.upgrade() {
        // If the queue is full, the block is freed.
        let _ = home.push(block);
    }
}
