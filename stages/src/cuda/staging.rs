//! Host memory that a device reads and writes by itself while the host goes on.

use std::cell::RefCell;
use std::ffi::c_void;

use cudarc::driver::result::{free_host, malloc_host};
use cudarc::driver::sys::CU_MEMHOSTALLOC_PORTABLE;

use super::driver::{self, Event, failed};
use super::{Gpu, Memory, Ptr};
use crate::error::Result;

/// The size of the smallest slot.
const SMALLEST: usize = 256;

/// The most slots of a size.
const MOST: usize = 16;

/// More bytes than this are copied in pieces, so that little of the host's memory is pinned.
const PIECE: usize = 32 << 20;

/// Host memory at a fixed place, which every device reaches.
#[derive(Debug)]
pub(crate) struct Pinned {
    at: *mut c_void,
    bytes: usize,
}

// SAFETY: it is plain memory that its owner alone reads and writes.
unsafe impl Send for Pinned {}
// SAFETY: a shared one is only read.
unsafe impl Sync for Pinned {}

impl Pinned {
    /// So many bytes, all zero. The thread has to have a [`Gpu`].
    pub(crate) fn new(bytes: usize) -> Result<Self> {
        // SAFETY: a context is current, as the caller promises.
        let at = unsafe { malloc_host(bytes.max(1), CU_MEMHOSTALLOC_PORTABLE) }
            .map_err(failed("taking host memory that devices reach"))?;
        // SAFETY: as many bytes were just given.
        unsafe { at.cast::<u8>().write_bytes(0, bytes) };
        Ok(Self { at, bytes })
    }

    /// Where a device finds it.
    pub(crate) fn at(&self) -> Ptr {
        Ptr(self.at as u64)
    }

    /// The numbers that kernels have written there. Once all work that writes there is done.
    pub(crate) fn numbers(&self) -> &[f64] {
        // SAFETY: pinned memory is aligned to pages; every bit pattern is a number.
        unsafe { std::slice::from_raw_parts(self.at.cast(), self.bytes / 8) }
    }

    /// Its bytes, to be written while no device reads them.
    fn write(&mut self, bytes: &[u8]) {
        assert!(
            bytes.len() <= self.bytes,
            "a slot is as large as what is put there"
        );
        // SAFETY: there is room, and the two do not overlap.
        unsafe {
            self.at
                .cast::<u8>()
                .copy_from_nonoverlapping(bytes.as_ptr(), bytes.len())
        };
    }

    /// Its bytes, once no device writes them.
    fn read(&self, bytes: &mut [u8]) {
        assert!(
            bytes.len() <= self.bytes,
            "a slot is as large as what is taken from there"
        );
        // SAFETY: there are as many, and the two do not overlap.
        unsafe {
            self.at
                .cast::<u8>()
                .copy_to_nonoverlapping(bytes.as_mut_ptr(), bytes.len())
        };
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: it was taken for this value alone. CUDA waits for work that still uses it.
        let _ = unsafe { free_host(self.at) };
    }
}

/// Slots for copies, used again once their copy is done.
#[derive(Debug, Default)]
pub(super) struct Staging {
    slots: RefCell<Vec<Slot>>,
}

#[derive(Debug)]
struct Slot {
    memory: Pinned,
    copied: Event,
}

impl Staging {
    /// A slot for so many bytes that no copy uses. There are few sizes, so that slots are soon used again.
    fn take(&self, bytes: usize) -> Result<Slot> {
        let bytes = bytes.max(SMALLEST).next_power_of_two();
        let mut slots = self.slots.borrow_mut();
        // The oldest of them is the first to be done; where there are many it is waited for.
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
        Ok(Slot {
            memory: Pinned::new(bytes)?,
            copied: Event::new(false)?,
        })
    }

    fn put(&self, slot: Slot) {
        self.slots.borrow_mut().push(slot);
    }
}

impl Gpu {
    /// A copy of these bytes on the device, in memory of few sizes. Does not wait for it.
    ///
    /// # Errors
    /// As [`Gpu::memory_of`].
    pub(crate) fn upload(&self, bytes: &[u8]) -> Result<Memory> {
        let memory = self.memory_of(bytes.len().next_power_of_two())?;
        self.upload_to(memory.at(), bytes)?;
        Ok(memory)
    }

    /// Copies bytes to a place on the device. Does not wait for it.
    pub(crate) fn upload_to(&self, at: Ptr, bytes: &[u8]) -> Result<()> {
        for (index, bytes) in bytes.chunks(PIECE).enumerate() {
            let mut slot = self.staging().take(bytes.len())?;
            slot.memory.write(bytes);
            let at = at.offset(index * PIECE);
            // SAFETY: the caller's place is as large; the slot stays as it is until its event is reached.
            unsafe { driver::upload(at, slot.memory.at, bytes.len(), self.stream()) }?;
            slot.copied.record(self.stream())?;
            self.staging().put(slot);
        }
        Ok(())
    }

    /// Copies bytes from the device, once all work given before is done: waits for it.
    pub(crate) fn download(&self, from: Ptr, bytes: &mut [u8]) -> Result<()> {
        for (index, bytes) in bytes.chunks_mut(PIECE).enumerate() {
            let slot = self.staging().take(bytes.len())?;
            let from = from.offset(index * PIECE);
            // SAFETY: the caller's place is as large; nobody else has the slot.
            unsafe { driver::download(slot.memory.at, from, bytes.len(), self.stream()) }?;
            slot.copied.record(self.stream())?;
            self.synchronize()?;
            slot.memory.read(bytes);
            self.staging().put(slot);
        }
        Ok(())
    }

    /// Copies bytes from one place on the device to another.
    pub(crate) fn copy(&self, to: Ptr, from: Ptr, bytes: usize) -> Result<()> {
        // SAFETY: the callers' places are as large, and used in the stream's order.
        unsafe { driver::copy(to, from, bytes, self.stream()) }
    }

    /// Sets bytes on the device to zero.
    pub(crate) fn clear(&self, at: Ptr, bytes: usize) -> Result<()> {
        // SAFETY: the caller's place is as large, and used in the stream's order.
        unsafe { driver::clear(at, bytes, self.stream()) }
    }
}
