//! Timing of work that a device does while the host goes on.

use std::rc::Rc;

use crate::cuda::Gpu;
use crate::cuda::driver::Event;
use crate::device::Device;
use crate::error::Result;

/// A device's clock. The host records marks between pieces of work that it queues, and asks later when the
/// device reached them.
pub trait Clock {
    /// Forgets all marks.
    fn reset(&mut self);

    /// Records a mark after all work queued so far and returns its number. The first mark after a
    /// [reset](Clock::reset) is 0, the next is 1.
    ///
    /// # Errors
    /// When the device reports an error, of this call or of earlier work.
    fn mark(&mut self) -> Result<usize>;

    /// Blocks until the device has reached all marks.
    ///
    /// # Errors
    /// When the device reports an error, of this call or of earlier work.
    fn wait(&self) -> Result<()>;

    /// Seconds from one mark to a later one. The device must have reached both.
    ///
    /// # Errors
    /// When the device reports an error, of this call or of earlier work.
    fn seconds(&self, from: usize, to: usize) -> Result<f64>;
}

/// A clock for the work that this thread queues on a device. `None` for the CPU, where the host does the work
/// itself.
///
/// # Errors
/// When the device cannot be reached.
pub fn clock(device: Device) -> Result<Option<Box<dyn Clock>>> {
    match device {
        Device::Cpu => Ok(None),
        Device::Cuda(index) => Ok(Some(Box::new(GpuClock::new(Gpu::of(index)?)))),
    }
}

/// Marks on a thread's compute stream.
#[derive(Debug)]
struct GpuClock {
    gpu: Rc<Gpu>,
    events: Vec<Event>,
    /// How many of the events are marks.
    marks: usize,
}

impl GpuClock {
    /// A clock without marks.
    fn new(gpu: Rc<Gpu>) -> Self {
        Self { gpu, events: Vec::new(), marks: 0 }
    }
}

impl Clock for GpuClock {
    fn reset(&mut self) {
        self.marks = 0;
    }

    fn mark(&mut self) -> Result<usize> {
        if self.marks == self.events.len() {
            self.events.push(Event::new(true)?);
        }
        self.events[self.marks].record(self.gpu.stream())?;
        self.marks += 1;
        Ok(self.marks - 1)
    }

    fn wait(&self) -> Result<()> {
        self.events[..self.marks].last().map_or(Ok(()), Event::synchronize)
    }

    fn seconds(&self, from: usize, to: usize) -> Result<f64> {
        let milliseconds = self.events[to].since(&self.events[from])?;
        Ok(f64::from(milliseconds) / 1000.0)
    }
}
