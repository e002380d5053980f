//! Device memory that values hold.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::cuda::driver::{Ptr, Stream};
use crate::cuda::memory::block_cache::{Block, Filler, Shelf};
use crate::error::Result;

/// Device memory. Clones share it. The last owner returns it to its thread.
#[derive(Debug)]
pub(crate) struct Memory(pub(super) Option<Arc<Block>>);

impl Memory {
    /// A block that nobody uses.
    pub(super) fn new(block: Arc<Block>) -> Self {
        block.owners.store(1, Ordering::Relaxed);
        Self(Some(block))
    }

    pub(crate) fn block(&self) -> &Arc<Block> {
        self.0.as_ref().expect("there until it is dropped")
    }

    /// Its address.
    pub(crate) fn at(&self) -> Ptr {
        self.block().at
    }

    /// The index of its device.
    pub(crate) fn device(&self) -> u32 {
        self.block().device
    }

    /// Whether it has other owners.
    pub(crate) fn is_shared(&self) -> bool {
        self.block().owners.load(Ordering::Acquire) > 1
    }

    /// An identity of the memory: equal for two values exactly if they share memory.
    pub(crate) fn address(&self) -> usize {
        self.at().0 as usize
    }

    /// Makes later work on the stream wait until the memory, marked by the stream that filled it, is ready.
    pub(crate) fn awaited_by(&self, stream: &Stream) -> Result<()> {
        stream.wait(&self.block().event)
    }

    /// Marks the memory as ready after all work on the stream so far. Other streams wait for that.
    pub(crate) fn filled_by(&self, stream: &Stream) -> Result<()> {
        self.block().record(stream, false)
    }

    /// Makes the next user of the memory wait for all work on the stream so far.
    pub(crate) fn used_on(&self, stream: &Stream) -> Result<()> {
        self.block().record(stream, true)
    }
}

impl Clone for Memory {
    fn clone(&self) -> Self {
        self.block().owners.fetch_add(1, Ordering::Relaxed);
        Self(self.0.clone())
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let Some(block) = &self.0 else { return };
        let shelf = Shelf::known(block.device);
        let own = shelf.filter(|shelf| {
            let own = block.is_of(shelf);
            // The next user does not wait for this compute stream on its own.
            if !own || block.filler != Filler::Compute {
                // Without the mark the next user would not wait, so the host waits here. If that fails too,
                // the device has failed, and the next call reports it.
                let stream = shelf.stream();
                let _ = self.used_on(stream).or_else(|_| stream.synchronize());
            }
            own
        });
        let Some(block) = self.0.take().filter(|block| block.give_up()) else {
            return;
        };
        let home = block.home.upgrade();
        match (own, home) {
            (Some(shelf), _) => shelf.put(block),
            // If the queue is full, the block is freed.
            (None, Some(home)) => drop(home.push(block)),
            // The block's thread has ended, so the block is freed.
            (None, None) => {}
        }
    }
}
