//! Device memory that is used again and again.
//!
//! A block belongs to the thread that took it and comes back to it from wherever it is dropped. On its own thread that needs no care: work is
//! done in the order it was given. Where another stream has used a block, an event stands for that use, and who takes the
//! block next has its stream wait for the event.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use crossbeam_queue::ArrayQueue;
use cudarc::driver::result::{device, mem_pool};
use cudarc::driver::sys::CUmemPool_attribute;

use super::driver::{self, Event, Stream, failed};
use super::{Gpu, Ptr};
use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};

/// How many blocks can be on their way home; one more is given back to CUDA.
const ON_THE_WAY: usize = 4096;

/// Device memory. Cloning shares it; the last owner sends it home.
#[derive(Clone, Debug)]
pub(crate) struct Memory(Option<Arc<Block>>);

#[derive(Debug)]
struct Block {
    at: Ptr,
    bytes: usize,
    device: u32,
    /// The last work on another stream than its thread's compute stream, or what a wire's receiver has to wait for.
    event: Event,
    /// Whether whoever takes it next has to wait for the event.
    used_elsewhere: AtomicBool,
    home: Weak<Home>,
}

type Home = ArrayQueue<Arc<Block>>;

/// A thread's blocks on a device that nobody uses now.
#[derive(Debug)]
pub(super) struct Shelf {
    by_size: RefCell<BTreeMap<usize, Vec<Arc<Block>>>>,
    home: Arc<Home>,
}

impl Shelf {
    /// An empty one. CUDA keeps what it is given back: no taking and giving back between steps.
    pub(super) fn new(index: u32, _stream: &Stream) -> Result<Self> {
        let handle = device::get(index as i32).map_err(failed("finding a device"))?;
        // SAFETY: the device is there, as it has a context.
        let pool =
            unsafe { device::get_default_mem_pool(handle) }.map_err(failed("finding the memory pool"))?;
        let threshold = CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
        let mut most = u64::MAX;
        // SAFETY: the attribute is of this type.
        unsafe { mem_pool::set_attribute(pool, threshold, std::ptr::from_mut(&mut most).cast()) }
            .map_err(failed("setting up the memory pool"))?;
        Ok(Self {
            by_size: RefCell::default(),
            home: Arc::new(ArrayQueue::new(ON_THE_WAY)),
        })
    }

    fn pop(&self, bytes: usize) -> Option<Arc<Block>> {
        self.by_size.borrow_mut().get_mut(&bytes)?.pop()
    }

    fn put(&self, block: Arc<Block>) {
        self.by_size
            .borrow_mut()
            .entry(block.bytes)
            .or_default()
            .push(block);
    }

    /// Takes in what has come home.
    fn collect(&self) {
        while let Some(block) = self.home.pop() {
            self.put(block);
        }
    }
}

impl Gpu {
    /// Memory for so many bytes, contents unspecified, for use on the compute stream.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`].
    pub(crate) fn memory_of(&self, bytes: usize) -> Result<Memory> {
        self.take(bytes, self.stream())
    }

    /// As [`Gpu::memory_of`], for use on another stream of this thread.
    pub(super) fn take(&self, bytes: usize, stream: &Stream) -> Result<Memory> {
        // Sizes in whole lines of the cache, so that tensors of about one size share a shelf.
        let bytes = bytes.max(1).next_multiple_of(256);
        let shelf = self.shelf();
        let block = shelf.pop(bytes).or_else(|| {
            shelf.collect();
            shelf.pop(bytes)
        });
        let block = match block {
            Some(block) => block,
            None => Arc::new(self.allocate(bytes)?),
        };
        if block.used_elsewhere.swap(false, Ordering::Acquire) {
            stream.wait(&block.event)?;
        }
        Ok(Memory(Some(block)))
    }

    fn allocate(&self, bytes: usize) -> Result<Block> {
        let at = match driver::allocate(bytes, self.stream())? {
            Some(at) => at,
            None => {
                // What nobody uses now may be enough, in other sizes.
                self.shelf().by_size.borrow_mut().clear();
                match driver::allocate(bytes, self.stream())? {
                    Some(at) => at,
                    None => return Err(self.out_of_memory(bytes)),
                }
            }
        };
        Ok(Block {
            at,
            bytes,
            device: self.index(),
            event: Event::new(false)?,
            used_elsewhere: AtomicBool::new(false),
            home: Arc::downgrade(&self.shelf().home),
        })
    }

    fn out_of_memory(&self, wanted: usize) -> Error {
        let (free, total) = self.memory().unwrap_or_default();
        Error {
            place: String::new(),
            kind: ErrorKind::OutOfMemory {
                device: Device::Cuda(self.index()),
                wanted: wanted as u64,
                free,
                total,
            },
        }
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

    /// Whether others share it.
    pub(crate) fn is_shared(&self) -> bool {
        Arc::strong_count(self.block()) > 1
    }

    /// A number that two share exactly when they share memory.
    pub(crate) fn address(&self) -> usize {
        self.block().at.0 as usize
    }

    /// Its contents are ready, for another stream, when all that the compute stream was given until now is done.
    pub(super) fn mark(&self, stream: &Stream) -> Result<()> {
        self.block().event.record(stream)
    }

    /// The stream waits for the work that was [marked](Self::mark).
    pub(super) fn wait_on(&self, stream: &Stream) -> Result<()> {
        stream.wait(&self.block().event)
    }

    /// Whether it is another thread's, so that its last use has to be told.
    fn is_foreign(&self, gpu: &Gpu) -> bool {
        self.block().home.as_ptr() != Arc::as_ptr(&gpu.shelf().home)
    }

    /// Who takes the memory next waits for all that the stream was given until now.
    pub(super) fn used_on(&self, stream: &Stream) -> Result<()> {
        self.mark(stream)?;
        self.block().used_elsewhere.store(true, Ordering::Release);
        Ok(())
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let own = match Gpu::known(self.block().device) {
            Some(gpu) if self.is_foreign(&gpu) => {
                // If the record fails the device has failed, which the next call tells.
                let _ = self.used_on(gpu.stream());
                None
            }
            own => own,
        };
        let Some(block) = self.0.take().filter(|block| Arc::strong_count(block) == 1) else {
            return;
        };
        match (own, block.home.upgrade()) {
            (Some(gpu), Some(_)) => gpu.shelf().put(block),
            // Full: this one is given back to CUDA.
            (None, Some(home)) => drop(home.push(block)),
            // Its thread has ended.
            (_, None) => {}
        }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: it was taken from CUDA for this block, and nobody shares the block any more. Giving back waits for the device.
        unsafe { driver::free(self.at) };
    }
}
