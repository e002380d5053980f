//! Device memory that is used again and again.
//!
//! A block belongs to the thread that allocated it, and returns there from wherever it is dropped. If only
//! that thread used the block, the next use needs no wait: the device does the thread's work in order. If
//! another stream used the block, an event marks the end of that use, and the stream of the next user waits
//! for the event.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::{Arc, Weak};

use crossbeam_queue::ArrayQueue;
use cudarc::driver::result::mem_pool;
use cudarc::driver::sys::CUmemPool_attribute;
use parking_lot::Mutex;

use super::driver::{self, Event, Stream, failed};
use super::{Gpu, Ptr};
use crate::device::Device;
use crate::error::{Error, ErrorKind, OutOfMemory, Result};

/// How many blocks can wait in a thread's queue of returned blocks. One more is freed.
const ON_THE_WAY: usize = 4096;

/// Sizes are multiples of this many bytes, so that tensors of similar size can use the same blocks.
const GRAIN: usize = 256;

/// Device memory. Clones share it. The last owner returns it to its thread.
#[derive(Clone, Debug)]
pub(crate) struct Memory(Option<Arc<Block>>);

#[derive(Debug)]
struct Block {
    at: Ptr,
    bytes: usize,
    device: u32,
    /// Whether the transfer stream fills it, instead of the compute stream.
    by_transfer: bool,
    /// The last work that other streams must wait for.
    event: Arc<Event>,
    /// Whether the next user must wait for the event. Locked while the event is recorded.
    used_elsewhere: Mutex<bool>,
    home: Weak<Home>,
}

/// An unused block. If an event of another device marks its last use, that event too.
type Free = (Arc<Block>, Option<Arc<Event>>);

/// The queue through which blocks return to their thread.
type Home = ArrayQueue<Free>;

/// Whether transfers fill a block, and its size in bytes.
type Size = (bool, usize);

/// A thread's unused blocks on a device.
#[derive(Debug)]
pub(super) struct Shelf {
    /// Blocks by size. Those that transfers fill are kept apart, so that a transfer does not wait for
    /// computing, nor computing for a transfer.
    blocks: RefCell<BTreeMap<Size, Vec<Free>>>,
    home: Arc<Home>,
}

impl Shelf {
    /// An empty shelf. It tells CUDA's own pool to keep all freed memory, so that steps do not allocate from
    /// the system.
    pub(super) fn new(index: u32) -> Result<Self> {
        let pool = driver::pool(index)?;
        let threshold = CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
        let mut most = u64::MAX;
        // SAFETY: the attribute is of this type.
        unsafe { mem_pool::set_attribute(pool, threshold, std::ptr::from_mut(&mut most).cast()) }
            .map_err(failed("setting up the memory pool"))?;
        Ok(Self {
            blocks: RefCell::default(),
            home: Arc::new(ArrayQueue::new(ON_THE_WAY)),
        })
    }

    fn pop(&self, by_transfer: bool, bytes: usize) -> Option<Free> {
        self.blocks.borrow_mut().get_mut(&(by_transfer, bytes))?.pop()
    }

    fn put(&self, free: Free) {
        let key = (free.0.by_transfer, free.0.bytes);
        self.blocks.borrow_mut().entry(key).or_default().push(free);
    }

    /// Frees all unused blocks.
    fn clear(&self, gpu: &Gpu) -> Result<()> {
        self.collect();
        let blocks = std::mem::take(&mut *self.blocks.borrow_mut());
        for event in blocks.values().flatten().filter_map(|(_, event)| event.as_ref()) {
            gpu.stream().wait(event)?;
        }
        Ok(())
    }

    /// Puts the returned blocks on the shelf.
    fn collect(&self) {
        while let Some(free) = self.home.pop() {
            self.put(free);
        }
    }
}

impl Gpu {
    /// Memory of this many bytes, for use on the compute stream. Its contents are unspecified.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub(crate) fn memory_of(&self, bytes: usize) -> Result<Memory> {
        self.take(false, bytes)
    }

    /// Like [`Gpu::memory_of`], for memory that lasts as long as the stage. Its error says so, because
    /// smaller micro-batches would not help.
    pub(super) fn lasting_memory_of(&self, bytes: usize) -> Result<Memory> {
        self.memory_of(bytes).map_err(|mut error| {
            if let ErrorKind::OutOfMemory(wanted) = &mut error.kind {
                wanted.lasting = true;
            }
            error
        })
    }

    /// Like [`Gpu::memory_of`], to be filled on the transfer stream.
    pub(super) fn memory_for_transfer(&self, bytes: usize) -> Result<Memory> {
        self.take(true, bytes)
    }

    fn take(&self, by_transfer: bool, bytes: usize) -> Result<Memory> {
        let bytes = bytes.max(1).next_multiple_of(GRAIN);
        let shelf = self.shelf();
        let mut block = shelf.pop(by_transfer, bytes);
        if block.is_none() {
            shelf.collect();
            block = shelf.pop(by_transfer, bytes);
        }
        let Some((block, event)) = block else {
            return Ok(Memory(Some(Arc::new(self.allocate(by_transfer, bytes)?))));
        };
        let stream = self.stream_of(by_transfer);
        if let Some(event) = event {
            stream.wait(&event)?;
        }
        if std::mem::take(&mut *block.used_elsewhere.lock()) {
            stream.wait(&block.event)?;
        }
        Ok(Memory(Some(block)))
    }

    fn stream_of(&self, by_transfer: bool) -> &Stream {
        if by_transfer {
            self.transfers()
        } else {
            self.stream()
        }
    }

    fn allocate(&self, by_transfer: bool, bytes: usize) -> Result<Block> {
        let stream = self.stream_of(by_transfer);
        let at = match driver::allocate(bytes, stream)? {
            Some(at) => at,
            None => {
                // Unused blocks of other sizes may free enough.
                self.shelf().clear(self)?;
                self.synchronize()?;
                driver::trim(self.index())?;
                driver::allocate(bytes, stream)?.ok_or_else(|| self.out_of_memory(bytes))?
            }
        };
        Ok(Block {
            at,
            bytes,
            device: self.index(),
            by_transfer,
            event: Arc::new(Event::new(false)?),
            used_elsewhere: Mutex::new(false),
            home: Arc::downgrade(&self.shelf().home),
        })
    }

    fn out_of_memory(&self, wanted: usize) -> Error {
        let error = OutOfMemory {
            device: Device::Cuda(self.index()),
            wanted: wanted as u64,
            left: self.memory().ok(),
            lasting: false,
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

    /// Copies another device's memory, which is marked as ready, to this device, on the transfer stream.
    pub(crate) fn received(&self, mut memory: Memory) -> Result<Memory> {
        let from = memory.0.take().expect("there until it is dropped");
        let copy = self.memory_for_transfer(from.bytes)?;
        let transfers = self.transfers();
        self.reach(from.device);
        transfers.wait(&from.event)?;
        // SAFETY: both blocks are as large as the copy, and the order of the streams is correct for both.
        unsafe {
            driver::copy_across(
                (copy.at(), self.index()),
                (from.at, from.device),
                from.bytes,
                transfers,
            )
        }?;
        copy.filled_by(transfers)?;
        self.wait_ready(&copy)?;
        if Arc::strong_count(&from) > 1 {
            // The other owner keeps the block for a backward pass. That pass waits for a gradient computed
            // from this copy, so it needs no event here.
            return Ok(copy);
        }
        if let Some(home) = from.home.upgrade() {
            // If the queue is full, the block is freed.
            let _ = home.push((from, Some(Arc::clone(&copy.block().event))));
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
    pub(super) fn awaited_by(&self, stream: &Stream) -> Result<()> {
        stream.wait(&self.block().event)
    }

    /// Marks the memory as ready after all work on the stream so far. Other streams wait for that.
    pub(super) fn filled_by(&self, stream: &Stream) -> Result<()> {
        self.block().record(stream, false)
    }

    /// Makes the next user of the memory wait for all work on the stream so far.
    pub(super) fn used_on(&self, stream: &Stream) -> Result<()> {
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
            if !own || block.by_transfer {
                // If this fails, the device has failed, and the next call reports it.
                let _ = self.used_on(gpu.stream());
            }
            own
        });
        let Some(block) = self.0.take().filter(|block| Arc::strong_count(block) == 1) else {
            return;
        };
        match (own, block.home.upgrade()) {
            (Some(gpu), _) => gpu.shelf().put((block, None)),
            // If the queue is full, the block is freed.
            (None, Some(home)) => drop(home.push((block, None))),
            // The block's thread has ended, so the block is freed.
            (None, None) => {}
        }
    }
}

impl Block {
    fn is_of(&self, gpu: &Gpu) -> bool {
        self.home.as_ptr() == Arc::as_ptr(&gpu.shelf().home)
    }

    /// Records the event after all work on the stream so far. The event still covers the earlier use
    /// elsewhere, or the transfer, that it stood for.
    fn record(&self, stream: &Stream, use_elsewhere: bool) -> Result<()> {
        let mut used_elsewhere = self.used_elsewhere.lock();
        if *used_elsewhere || self.by_transfer {
            stream.wait(&self.event)?;
        }
        self.event.record(stream)?;
        *used_elsewhere |= use_elsewhere;
        Ok(())
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let gpu = Gpu::known(self.device).filter(|gpu| self.is_of(gpu));
        let in_order = gpu.and_then(|gpu| {
            gpu.stream().wait(&self.event).ok()?;
            // SAFETY: the memory was allocated for this block, which has no other owner any more.
            unsafe { driver::free_in_order(self.at, gpu.stream()) }.ok()
        });
        if in_order.is_none() {
            // SAFETY: as above.
            unsafe { driver::free(self.at, self.device) };
        }
    }
}
