//! Taking device memory.

use std::sync::Arc;

use crate::cuda::driver::{self, Stream};
use crate::cuda::failure;
use crate::cuda::memory::block_cache::{Block, Filler, Kind, Shelf};
use crate::cuda::memory::device::Memory;
use crate::cuda::streams::Streams;
use crate::cuda::weight_stream::WeightStream;
use crate::device::Device;
use crate::error::{Error, OutOfMemory, Purpose, Result};

/// Sizes are multiples of this many bytes, so that tensors of similar size can use the same blocks.
const GRAIN: usize = 256;

impl Streams {
    /// Memory of this many bytes, for use on the compute stream. Its contents are unspecified.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub(crate) fn memory_of(&self, bytes: usize) -> Result<Memory> {
        self.take(Filler::Compute, bytes)
    }

    /// Like [`Streams::memory_of`], for memory that lasts as long as the stage. Its error says so, because
    /// smaller micro-batches would not help.
    pub(crate) fn lasting_memory_of(&self, bytes: usize) -> Result<Memory> {
        self.memory_of(bytes).map_err(|error| error.wanted_for(Purpose::Stage))
    }

    /// Like [`Streams::memory_of`], to be filled on the transfer stream.
    pub(crate) fn memory_for_transfer(&self, bytes: usize) -> Result<Memory> {
        self.take(Filler::Transfers, bytes)
    }

    fn take(&self, filler: Filler, bytes: usize) -> Result<Memory> {
        let kind = (filler, bytes.max(1).next_multiple_of(GRAIN));
        let block = match self.shelf().ready(kind)? {
            Some(block) => block,
            None => self.new_or_oldest(kind)?,
        };
        Ok(Memory::new(block))
    }

    /// New memory, or if there is none or enough was taken already, a block that another stream still uses.
    fn new_or_oldest(&self, kind: Kind) -> Result<Arc<Block>> {
        let (shelf, stream) = (self.shelf(), self.stream_of(kind.0));
        if !shelf.is_full(kind) {
            shelf.make_room(kind.1)?;
            if let Some(at) = driver::allocate(kind.1, stream)? {
                return Block::new(at, kind, shelf);
            }
        }
        if let Some(block) = shelf.oldest(kind, stream)? {
            return Ok(block);
        }
        // Freeing unused blocks of other sizes may be enough, or else unused blocks of other threads.
        self.weight_stream().map_or(Ok(()), WeightStream::await_all)?;
        for clear in [Shelf::clear, Shelf::clear_others] {
            clear(shelf)?;
            self.synchronize()?;
            driver::trim(self.index())?;
            if let Some(at) = driver::allocate(kind.1, stream)? {
                return Block::new(at, kind, shelf);
            }
        }
        Err(self.out_of_memory(kind.1))
    }

    fn stream_of(&self, filler: Filler) -> &Stream {
        match filler {
            Filler::Compute => self.stream(),
            Filler::Transfers => self.transfers(),
            Filler::Copies => self.copies(),
        }
    }

    fn out_of_memory(&self, wanted: usize) -> Error {
        OutOfMemory::of(Device::Cuda(self.index()), wanted as u64, failure::free_and_total().ok()).into()
    }

    /// Marks the memory as ready after all work on the compute stream so far. Other streams wait for that.
    pub(crate) fn mark_ready(&self, memory: &Memory) -> Result<()> {
        memory.filled_by(self.stream())
    }

    /// Makes later work on the compute stream wait for memory that another thread has marked as ready.
    pub(crate) fn wait_ready(&self, memory: &Memory) -> Result<()> {
        memory.awaited_by(self.stream())
    }

    /// Copies another device's memory, which is marked as ready, to this device, on the stream for copies. So
    /// a copy waits for what it copies and for earlier copies, and for no transfer between processes.
    pub(crate) fn received(&self, mut memory: Memory) -> Result<Memory> {
        let from = memory.0.take().expect("there until it is dropped");
        let copy = self.take(Filler::Copies, from.bytes)?;
        let stream = self.copies();
        let how = self.reach(from.device);
        stream.wait(&from.event)?;
        // SAFETY: both blocks are as large as the copy, and the order of the streams is correct for both.
        unsafe {
            driver::copy_across((copy.at(), self.index()), (from.at, from.device), from.bytes, how, stream)
        }?;
        let marked = copy.filled_by(stream).and_then(|()| self.wait_ready(&copy));
        if marked.is_err() {
            // Nothing else waits for the copy before the memory is used again.
            let _ = stream.synchronize();
        }
        marked?;
        from.copied_until(&copy.block().event);
        // The other owner may keep the block for a backward pass. Such a pass waits for a gradient computed
        // from this copy, but a step that fails has none.
        if from.give_up()
            && let Some(home) = from.home.upgrade()
        {
            // If the queue is full, the block is freed.
            let _ = home.push(from);
        }
        Ok(copy)
    }
}
