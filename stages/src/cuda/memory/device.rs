//! Device memory that is used again and again.
//!
//! A block belongs to the thread that allocated it, and returns there from wherever it is dropped. If only
//! that thread used the block, the next use needs no wait: the device does the thread's work in order. If
//! another stream used the block, an event marks the end of that use, and the stream of the next user waits
//! for the event. Blocks without such a wait are used first (`block_cache.rs`), so that computing does not
//! wait for a transfer as long as there is other memory.

use std::rc::Rc;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::block_cache::{Home, Kind, Shelf};
use crate::cuda::driver;
use crate::cuda::driver::{Event, Stream};
use crate::cuda::{Gpu, Ptr};
use crate::device::Device;
use crate::error::{Error, OutOfMemory, Purpose, Result, Wanted};

/// Sizes are multiples of this many bytes, so that tensors of similar size can use the same blocks.
const GRAIN: usize = 256;

/// Device memory. Clones share it. The last owner returns it to its thread.
#[derive(Clone, Debug)]
pub(crate) struct Memory(Option<Arc<Block>>);

/// The stream that fills a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Filler {
    /// The compute stream.
    Compute,
    /// The stream for transfers between processes.
    Transfers,
    /// The stream for copies from other devices.
    Copies,
}

#[derive(Debug)]
pub(crate) struct Block {
    at: Ptr,
    bytes: usize,
    device: u32,
    filler: Filler,
    /// The last work that other streams must wait for.
    event: Arc<Event>,
    /// Whether the next user must wait for the event. Locked while the event is recorded.
    used_elsewhere: Mutex<bool>,
    /// The ends of copies to other devices, for which nobody on this device has waited.
    copied: Mutex<Vec<Arc<Event>>>,
    home: Weak<Home>,
}

impl Gpu {
    /// Memory of this many bytes, for use on the compute stream. Its contents are unspecified.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub(crate) fn memory_of(&self, bytes: usize) -> Result<Memory> {
        self.take(Filler::Compute, bytes)
    }

    /// Like [`Gpu::memory_of`], for memory that lasts as long as the stage. Its error says so, because
    /// smaller micro-batches would not help.
    pub(crate) fn lasting_memory_of(&self, bytes: usize) -> Result<Memory> {
        self.memory_of(bytes)
            .map_err(|error| error.wanted_for(Purpose::Stage))
    }

    /// Like [`Gpu::memory_of`], to be filled on the transfer stream.
    pub(crate) fn memory_for_transfer(&self, bytes: usize) -> Result<Memory> {
        self.take(Filler::Transfers, bytes)
    }

    fn take(&self, filler: Filler, bytes: usize) -> Result<Memory> {
        let kind = (filler, bytes.max(1).next_multiple_of(GRAIN));
        let block = match self.shelf().ready(kind)? {
            Some(block) => block,
            None => self.new_or_oldest(kind)?,
        };
        Ok(Memory(Some(block)))
    }

    /// New memory, or if there is none or enough was taken already, a block that another stream still uses.
    fn new_or_oldest(&self, kind: Kind) -> Result<Arc<Block>> {
        let (shelf, stream) = (self.shelf(), self.stream_of(kind.0));
        if !shelf.is_full(kind)
            && let Some(at) = driver::allocate(kind.1, stream)?
        {
            return self.block(at, kind);
        }
        if let Some(block) = shelf.oldest(kind, stream)? {
            return Ok(block);
        }
        // Freeing unused blocks of other sizes may be enough, or else unused blocks of other threads.
        for clear in [Shelf::clear, Shelf::clear_others] {
            clear(shelf)?;
            self.synchronize()?;
            driver::trim(self.index())?;
            if let Some(at) = driver::allocate(kind.1, stream)? {
                return self.block(at, kind);
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

    fn block(&self, at: Ptr, (filler, bytes): Kind) -> Result<Arc<Block>> {
        let event = Event::new(false).inspect_err(|_| {
            // SAFETY: the memory was just allocated, and nobody has used it.
            unsafe { driver::free(at, self.index()) };
        })?;
        Ok(Arc::new(Block {
            at,
            bytes,
            device: self.index(),
            filler,
            event: Arc::new(event),
            used_elsewhere: Mutex::new(false),
            copied: Mutex::default(),
            home: self.shelf().home(),
        }))
    }

    fn out_of_memory(&self, wanted: usize) -> Error {
        let error = OutOfMemory {
            device: Device::Cuda(self.index()),
            wanted: Wanted::Bytes(wanted as u64),
            left: self.memory().ok(),
            purpose: Purpose::Passes,
        };
        error.into()
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
            driver::copy_across(
                (copy.at(), self.index()),
                (from.at, from.device),
                from.bytes,
                how,
                stream,
            )
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
        if Arc::strong_count(&from) == 1
            && let Some(home) = from.home.upgrade()
        {
            // If the queue is full, the block is freed.
            let _ = home.push(from);
        }
        Ok(copy)
    }
}

impl Memory {
    fn block(&self) -> &Arc<Block> {
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

    /// The GPU that it is on, as this thread uses it.
    pub(crate) fn gpu(&self) -> Result<Rc<Gpu>> {
        Gpu::of(self.device())
    }

    /// Whether it has other owners.
    pub(crate) fn is_shared(&self) -> bool {
        Arc::strong_count(self.block()) > 1
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

impl Drop for Memory {
    fn drop(&mut self) {
        let Some(block) = &self.0 else { return };
        let gpu = Gpu::known(block.device);
        let own = gpu.filter(|gpu| {
            let own = block.is_of(gpu);
            // The next user does not wait for this compute stream on its own.
            if !own || block.filler != Filler::Compute {
                // Without the mark the next user would not wait, so the host waits here. If that fails too,
                // the device has failed, and the next call reports it.
                let _ = self.used_on(gpu.stream()).or_else(|_| gpu.stream().synchronize());
            }
            own
        });
        let Some(block) = self.0.take().filter(|block| Arc::strong_count(block) == 1) else {
            return;
        };
        let home = block.home.upgrade();
        match (own, home) {
            (Some(gpu), _) => gpu.shelf().put(block),
            // If the queue is full, the block is freed.
            (None, Some(home)) => drop(home.push(block)),
            // The block's thread has ended, so the block is freed.
            (None, None) => {}
        }
    }
}

impl Block {
    /// Who fills it, and its size.
    pub(crate) fn kind(&self) -> Kind {
        (self.filler, self.bytes)
    }

    /// It is copied to another device until this event. Only its own thread may forget that again.
    fn copied_until(&self, event: &Arc<Event>) {
        let mut copied = self.copied.lock();
        if !copied.iter().any(|known| Arc::ptr_eq(known, event)) {
            copied.push(Arc::clone(event));
        }
    }

    /// Whether its next user may have to wait for another stream.
    pub(crate) fn is_used_elsewhere(&self) -> bool {
        *self.used_elsewhere.lock() || !self.copied.lock().is_empty()
    }

    /// Whether no other stream uses it any more.
    pub(crate) fn is_done(&self) -> Result<bool> {
        let mut copied = self.copied.lock();
        forget_done(&mut copied)?;
        if !copied.is_empty() {
            return Ok(false);
        }
        let mut used_elsewhere = self.used_elsewhere.lock();
        *used_elsewhere = *used_elsewhere && !self.event.is_done()?;
        Ok(!*used_elsewhere)
    }

    /// Makes later work on the stream wait until no other stream uses it.
    pub(crate) fn make_wait(&self, stream: &Stream) -> Result<()> {
        for event in self.copied.lock().drain(..) {
            stream.wait(&event)?;
        }
        match std::mem::take(&mut *self.used_elsewhere.lock()) {
            true => stream.wait(&self.event),
            false => Ok(()),
        }
    }

    /// Frees it, in the order of the compute stream of this thread, to which this queue belongs. The work of
    /// its own thread must be done, and nobody may use it.
    pub(crate) fn free_by(self: Arc<Self>, home: Weak<Home>) {
        if let Some(mut block) = Arc::into_inner(self) {
            block.home = home;
        }
    }

    fn is_of(&self, gpu: &Gpu) -> bool {
        self.home.ptr_eq(&gpu.shelf().home())
    }

    /// Records the event after all work on the stream so far. The event still covers the earlier use
    /// elsewhere, or the transfer, that it stood for.
    fn record(&self, stream: &Stream, use_elsewhere: bool) -> Result<()> {
        let mut used_elsewhere = self.used_elsewhere.lock();
        if *used_elsewhere || self.filler != Filler::Compute {
            stream.wait(&self.event)?;
        }
        self.event.record(stream)?;
        *used_elsewhere |= use_elsewhere;
        Ok(())
    }
}

/// Leaves out the events that the device has reached.
fn forget_done(events: &mut Vec<Arc<Event>>) -> Result<()> {
    let mut failed = Ok(());
    events.retain(|event| match event.is_done() {
        Ok(is_done) => !is_done,
        Err(error) => {
            failed = Err(error);
            true
        }
    });
    failed
}

impl Drop for Block {
    fn drop(&mut self) {
        let gpu = Gpu::known(self.device).filter(|gpu| self.is_of(gpu));
        let copied = std::mem::take(self.copied.get_mut());
        let in_order = gpu.and_then(|gpu| {
            gpu.stream().wait(&self.event).ok()?;
            for event in &copied {
                gpu.stream().wait(event).ok()?;
            }
            // SAFETY: the memory was allocated for this block, which has no other owner any more.
            unsafe { driver::free_in_order(self.at, gpu.stream()) }.ok()
        });
        if in_order.is_none() {
            // Freeing waits for this device only. If the wait fails, the other device has failed.
            for event in copied {
                let _ = event.synchronize();
            }
            // SAFETY: as above.
            unsafe { driver::free(self.at, self.device) };
        }
    }
}
