//! Device memory that is used again and again.
//!
//! A block belongs to the thread that took it and comes back to it from wherever it is dropped. On its own thread that needs no care: work is
//! done in the order it was given. Where another stream has used a block, an event stands for that use, and who takes the
//! block next has its stream wait for the event.

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

/// How many blocks can be on their way home; one more is given back to CUDA.
const ON_THE_WAY: usize = 4096;

/// Sizes are whole multiples of this, so that tensors of about one size share blocks.
const GRAIN: usize = 256;

/// Device memory. Cloning shares it; the last owner sends it home.
#[derive(Clone, Debug)]
pub(crate) struct Memory(Option<Arc<Block>>);

#[derive(Debug)]
struct Block {
    at: Ptr,
    bytes: usize,
    device: u32,
    /// What it is filled by, rather than by the compute stream.
    by_transfer: bool,
    /// The last work that somebody else has to wait for.
    event: Arc<Event>,
    /// Whether whoever takes it next has to wait for the event. Locked while the event is recorded.
    used_elsewhere: Mutex<bool>,
    home: Weak<Home>,
}

/// A block that nobody uses now, and an event of another device's when that stands for its last use.
type Free = (Arc<Block>, Option<Arc<Event>>);

/// Blocks on their way home.
type Home = ArrayQueue<Free>;

/// Whether a block is filled by transfers, and its bytes.
type Size = (bool, usize);

/// A thread's blocks on a device that nobody uses now.
#[derive(Debug)]
pub(super) struct Shelf {
    /// By whether they are filled by transfers, and by size: a transfer does not wait for what computes, nor the other way round.
    blocks: RefCell<BTreeMap<Size, Vec<Free>>>,
    home: Arc<Home>,
}

impl Shelf {
    /// An empty one. CUDA keeps what it is given back: no taking and giving back between steps.
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

    /// Gives back all that nobody uses now.
    fn clear(&self, gpu: &Gpu) -> Result<()> {
        self.collect();
        let blocks = std::mem::take(&mut *self.blocks.borrow_mut());
        for event in blocks.values().flatten().filter_map(|(_, event)| event.as_ref()) {
            gpu.stream().wait(event)?;
        }
        Ok(())
    }

    /// Takes in what has come home.
    fn collect(&self) {
        while let Some(free) = self.home.pop() {
            self.put(free);
        }
    }
}

impl Gpu {
    /// Memory for so many bytes, contents unspecified, for use on the compute stream.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub(crate) fn memory_of(&self, bytes: usize) -> Result<Memory> {
        self.take(false, bytes)
    }

    /// As [`Gpu::memory_of`], for what stays for as long as the stage: smaller passes would not make it less.
    pub(super) fn lasting_memory_of(&self, bytes: usize) -> Result<Memory> {
        self.memory_of(bytes).map_err(|mut error| {
            if let ErrorKind::OutOfMemory(wanted) = &mut error.kind {
                wanted.lasting = true;
            }
            error
        })
    }

    /// As [`Gpu::memory_of`], to be filled on the transfer stream.
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
                // What nobody uses now may be enough, in other sizes.
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

    /// What the compute stream was given until now makes the memory what it is: others wait for that.
    pub(crate) fn mark_ready(&self, memory: &Memory) -> Result<()> {
        memory.filled_by(self.stream())
    }

    /// What the compute stream is given from now on waits until memory that another thread has marked is ready.
    pub(crate) fn wait_ready(&self, memory: &Memory) -> Result<()> {
        memory.awaited_by(self.stream())
    }

    /// The contents of another device's memory that is marked as ready, copied here on the transfer stream.
    pub(crate) fn received(&self, mut memory: Memory) -> Result<Memory> {
        let from = memory.0.take().expect("there until it is dropped");
        let copy = self.memory_for_transfer(from.bytes)?;
        let transfers = self.transfers();
        self.reach(from.device);
        transfers.wait(&from.event)?;
        // SAFETY: both blocks are as large as the copy; the streams' order is the one in which they may be used.
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
            // The other owner keeps it for a backward pass, which waits for a gradient made of this copy.
            return Ok(copy);
        }
        if let Some(home) = from.home.upgrade() {
            // Full: this one is given back to CUDA.
            let _ = home.push((from, Some(Arc::clone(&copy.block().event))));
        }
        Ok(copy)
    }
}

impl Memory {
    fn block(&self) -> &Arc<Block> {
        self.0.as_ref().expect("there until it is dropped")
    }

    /// Where it begins.
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

    /// Whether others share it.
    pub(crate) fn is_shared(&self) -> bool {
        Arc::strong_count(self.block()) > 1
    }

    /// A number that two share exactly when they share memory.
    pub(crate) fn address(&self) -> usize {
        self.at().0 as usize
    }

    /// What the stream is given from now on waits until the memory, marked by whoever filled it, is ready.
    pub(super) fn awaited_by(&self, stream: &Stream) -> Result<()> {
        stream.wait(&self.block().event)
    }

    /// What the stream was given until now makes the memory what it is: others wait for that.
    pub(super) fn filled_by(&self, stream: &Stream) -> Result<()> {
        self.block().record(stream, false)
    }

    /// Who takes the memory next waits for all that the stream was given until now.
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
            // Where computing is not what the next one to take it waits for by itself.
            if !own || block.by_transfer {
                // If the record fails the device has failed, which the next call tells.
                let _ = self.used_on(gpu.stream());
            }
            own
        });
        let Some(block) = self.0.take().filter(|block| Arc::strong_count(block) == 1) else {
            return;
        };
        match (own, block.home.upgrade()) {
            (Some(gpu), _) => gpu.shelf().put((block, None)),
            // Full: this one is given back to CUDA.
            (None, Some(home)) => drop(home.push((block, None))),
            // Its thread has ended.
            (None, None) => {}
        }
    }
}

impl Block {
    fn is_of(&self, gpu: &Gpu) -> bool {
        self.home.as_ptr() == Arc::as_ptr(&gpu.shelf().home)
    }

    /// The event stands for what the stream was given until now, and for the use elsewhere, or the transfer, that it stood for before.
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
            // SAFETY: it was taken from CUDA for this block, and nobody shares the block any more.
            unsafe { driver::free_in_order(self.at, gpu.stream()) }.ok()
        });
        if in_order.is_none() {
            // SAFETY: as above.
            unsafe { driver::free(self.at, self.device) };
        }
    }
}
