//! Timing of a GPU's work, with events.

use std::rc::Rc;

use super::Gpu;
use super::driver::Event;
use crate::error::Result;
use crate::stage::clock::Clock;

/// Marks on a thread's compute stream.
#[derive(Debug)]
pub(crate) struct GpuClock {
    gpu: Rc<Gpu>,
    events: Vec<Event>,
    /// How many of the events are marks.
    marks: usize,
}

impl GpuClock {
    /// A clock without marks.
    pub(crate) fn new(gpu: Rc<Gpu>) -> Self {
        Self {
            gpu,
            events: Vec::new(),
            marks: 0,
        }
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
        self.events[..self.marks]
            .last()
            .map_or(Ok(()), Event::synchronize)
    }

    fn seconds(&self, from: usize, to: usize) -> Result<f64> {
        let milliseconds = self.events[to].since(&self.events[from])?;
        Ok(f64::from(milliseconds) / 1000.0)
    }
}
