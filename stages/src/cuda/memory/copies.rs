//! Copies to and from device memory.

use std::ffi::c_void;

use crate::cuda::driver::{self, Ptr};
use crate::cuda::memory::device::Memory;
use crate::cuda::streams::Streams;
use crate::error::Result;

/// Longer copies are split into pieces of this many bytes, so that little host memory is pinned.
const PIECE: usize = 32 << 20;

impl Streams {
    /// Copies these bytes to new memory on the device, which has one of few sizes. Does not wait for the
    /// copy.
    ///
    /// # Errors
    /// As [`Streams::memory_of`].
    pub(crate) fn upload(&self, bytes: &[u8]) -> Result<Memory> {
        let memory = self.memory_of(bytes.len().next_power_of_two())?;
        self.upload_to(memory.at(), bytes)?;
        Ok(memory)
    }

    /// Copies bytes to an address on the device. Does not wait for the copy.
    pub(crate) fn upload_to(&self, at: Ptr, bytes: &[u8]) -> Result<()> {
        for (index, bytes) in bytes.chunks(PIECE).enumerate() {
            let mut slot = self.staging().take(bytes.len())?;
            slot.memory.write(bytes);
            let at = at.offset(index * PIECE);
            // SAFETY: the caller's memory is large enough, and the slot does not change until its event is
            // reached.
            unsafe { driver::upload(at, slot.memory.at().0 as *mut c_void, bytes.len(), self.stream()) }?;
            slot.copied.record(self.stream())?;
            self.staging().put(slot);
        }
        Ok(())
    }

    /// Copies bytes from the device, after all work queued so far. Waits for the copy.
    pub(crate) fn download(&self, from: Ptr, bytes: &mut [u8]) -> Result<()> {
        for (index, bytes) in bytes.chunks_mut(PIECE).enumerate() {
            let slot = self.staging().take(bytes.len())?;
            let from = from.offset(index * PIECE);
            // SAFETY: the caller's memory is large enough, and nobody else has the slot.
            unsafe { driver::download(slot.memory.at().0 as *mut c_void, from, bytes.len(), self.stream()) }?;
            slot.copied.record(self.stream())?;
            self.synchronize()?;
            slot.memory.read(bytes);
            self.staging().put(slot);
        }
        Ok(())
    }

    /// Copies bytes from one address on the device to another.
    pub(crate) fn copy(&self, to: Ptr, from: Ptr, bytes: usize) -> Result<()> {
        // SAFETY: the callers' memory is large enough, and is used in the stream's order.
        unsafe { driver::copy(to, from, bytes, self.stream()) }
    }

    /// Sets bytes on the device to zero.
    pub(crate) fn clear(&self, at: Ptr, bytes: usize) -> Result<()> {
        // SAFETY: the caller's memory is large enough, and is used in the stream's order.
        unsafe { driver::clear(at, bytes, self.stream()) }
    }
}
