//! Host memory that a device reads and writes by itself while the host goes on (pinned memory).

use std::cell::RefCell;
use std::ffi::c_void;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use cudarc::driver::result::{DriverError, free_host, malloc_host};
use cudarc::driver::sys::{CU_MEMHOSTALLOC_PORTABLE, CUresult};

use crate::cuda::context::{current, enter_to_free};
use crate::cuda::driver::{Event, Ptr};
use crate::cuda::failure::failed;
use crate::error::{OutOfMemory, Result};

/// The size of the smallest slot, in bytes.
const SMALLEST: usize = 256;

/// The most slots of one size.
const MOST: usize = 16;

/// Pinned host memory that every device can access.
///
/// A drop does not wait. CUDA frees such memory when all devices are done with all work so far, and that may
/// be never: work may wait for a process that has ended, and a host that waits would not see that.
#[derive(Debug)]
pub(crate) struct Pinned {
    at: *mut c_void,
    bytes: usize,
    /// A GPU that it was taken for.
    gpu: Option<u32>,
}

/// Memory that is to be freed.
struct Unused {
    at: *mut c_void,
    gpu: Option<u32>,
}

// SAFETY: nobody else has the memory any more.
unsafe impl Send for Unused {}

/// To the thread that frees memory, one block after the other.
static UNUSED: LazyLock<Option<Sender<Unused>>> = LazyLock::new(|| {
    let (sender, unused) = channel::<Unused>();
    let free = move || unused.into_iter().for_each(|unused| unused.free());
    let started = thread::Builder::new().name("pinned memory".to_owned()).spawn(free);
    started.ok().map(|_| sender)
});

impl Unused {
    /// Frees it, once no work uses it. What cannot be freed is there until the process ends.
    fn free(self) {
        if self.gpu.is_none_or(|gpu| enter_to_free(gpu).is_ok()) {
            // SAFETY: the memory was allocated for one value, which is gone. CUDA waits for work that uses
            // it.
            let _ = unsafe { free_host(self.at) };
        }
        FREEING.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How many blocks are to be freed.
static FREEING: AtomicUsize = AtomicUsize::new(0);

/// How often, at most, memory that cannot be had is tried again while other memory is being freed, and how
/// long after each other.
const TRIES: usize = 100;
const PAUSE: Duration = Duration::from_millis(10);

// SAFETY: it is plain memory, and only its owner reads and writes it.
unsafe impl Send for Pinned {}
// SAFETY: a shared reference only allows reading.
unsafe impl Sync for Pinned {}

impl Pinned {
    /// Pinned memory of this many zero bytes. The thread must have a [`Gpu`].
    pub(crate) fn new(bytes: usize) -> Result<Self> {
        // SAFETY: a context is current, as the caller promises.
        let take = || unsafe { malloc_host(bytes.max(1), CU_MEMHOSTALLOC_PORTABLE) };
        let mut taken = take();
        for _ in 0..TRIES {
            let lacks = matches!(taken, Err(DriverError(CUresult::CUDA_ERROR_OUT_OF_MEMORY)));
            if !lacks || FREEING.load(Ordering::Relaxed) == 0 {
                break;
            }
            thread::sleep(PAUSE);
            taken = take();
        }
        let at = taken.map_err(|error| match error {
            DriverError(CUresult::CUDA_ERROR_OUT_OF_MEMORY) => OutOfMemory::on_host::<u8>(bytes).into(),
            error => failed("taking host memory that devices reach")(error),
        })?;
        // SAFETY: this many bytes were just allocated.
        unsafe { at.cast::<u8>().write_bytes(0, bytes) };
        Ok(Self { at, bytes, gpu: current() })
    }

    /// The address for a device.
    pub(crate) fn at(&self) -> Ptr {
        Ptr(self.at as u64)
    }

    /// The numbers that kernels have written there. All work that writes them must be done.
    pub(crate) fn numbers(&self) -> &[f64] {
        // SAFETY: pinned memory is aligned to pages, and every bit pattern is a valid number.
        unsafe { std::slice::from_raw_parts(self.at.cast(), self.bytes / 8) }
    }

    /// Writes its bytes. No device may read them meanwhile.
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        assert!(bytes.len() <= self.bytes, "a slot is as large as what is put there");
        // SAFETY: there is room, and the two do not overlap.
        unsafe { self.at.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }

    /// Reads its bytes. No device may write them meanwhile.
    pub(crate) fn read(&self, bytes: &mut [u8]) {
        assert!(bytes.len() <= self.bytes, "a slot is as large as what is taken from there");
        // SAFETY: there are that many bytes, and the two do not overlap.
        unsafe { self.at.cast::<u8>().copy_to_nonoverlapping(bytes.as_mut_ptr(), bytes.len()) };
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // Without the thread it stays.
        if let Some(thread) = UNUSED.as_ref() {
            FREEING.fetch_add(1, Ordering::Relaxed);
            let _ = thread.send(Unused { at: self.at, gpu: self.gpu });
        }
    }
}

/// Slots for copies. A slot can be used again once its copy is done.
#[derive(Debug, Default)]
pub(crate) struct Staging {
    slots: RefCell<Vec<Slot>>,
}

#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) memory: Pinned,
    pub(crate) copied: Event,
}

impl Staging {
    /// A free slot for this many bytes. There are few sizes, so that slots are used again soon.
    pub(crate) fn take(&self, bytes: usize) -> Result<Slot> {
        let bytes = bytes.max(SMALLEST).next_power_of_two();
        let mut slots = self.slots.borrow_mut();
        // The oldest slot is done first. If there are many slots of this size, waits for it.
        let mut same = (0..slots.len()).filter(|index| slots[*index].memory.bytes == bytes);
        if let Some(oldest) = same.next() {
            let copied = &slots[oldest].copied;
            if same.count() + 1 >= MOST {
                copied.synchronize()?;
            }
            if copied.is_done()? {
                return Ok(slots.remove(oldest));
            }
        }
        Ok(Slot { memory: Pinned::new(bytes)?, copied: Event::new(false)? })
    }

    pub(crate) fn put(&self, slot: Slot) {
        self.slots.borrow_mut().push(slot);
    }
}
