//! Times of work that the host does not wait for.

use crate::cuda::{Gpu, GpuClock};
use crate::device::Device;
use crate::error::Result;

/// A device's clock: the host puts marks between the work it gives, and asks later when they were reached.
pub trait Clock {
    /// Forgets all marks.
    fn reset(&mut self);

    /// A mark after all work given until now: the first since the [reset](Clock::reset) is 0, the next 1, ...
    ///
    /// # Errors
    /// What the device reports, of this or of work before it.
    fn mark(&mut self) -> Result<usize>;

    /// Blocks until all marks are reached.
    ///
    /// # Errors
    /// What the device reports, of this or of work before it.
    fn wait(&self) -> Result<()>;

    /// Seconds from one mark to a later one, once the device is done with all work before them.
    ///
    /// # Errors
    /// What the device reports, of this or of work before it.
    fn seconds(&self, from: usize, to: usize) -> Result<f64>;
}

/// A clock of what this thread gives a device to do. None of the CPU: the host does that work itself.
///
/// # Errors
/// When the device cannot be reached.
pub fn clock(device: Device) -> Result<Option<Box<dyn Clock>>> {
    match device {
        Device::Cpu => Ok(None),
        Device::Cuda(index) => Ok(Some(Box::new(GpuClock::new(Gpu::of(index)?)))),
    }
}
