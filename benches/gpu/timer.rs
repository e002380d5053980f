//! Times of work on a GPU, by the GPU's own clock. Before each pass, other data fills the caches.

use pipewright::stages::layers::{Gelu, GeluForm};
use pipewright::stages::{Clock, Error, ForwardContext, Mode, Place, Result, Sequential, Stage, Tensor};

/// The context of training's first micro-batch.
pub(crate) const TRAIN: ForwardContext = ForwardContext { step: 0, micro_batch: 0, mode: Mode::Train };

/// The context of a pass that keeps nothing.
pub(crate) const EVALUATE: ForwardContext = ForwardContext { mode: Mode::Evaluate, ..TRAIN };

/// How often the caches are filled before a pass. This keeps a GPU busy for half a millisecond. Meanwhile the
/// host queues the whole pass, so that its own time is not measured.
const FILLS: usize = 8;

/// Times passes.
pub(crate) struct Timer {
    clock: Box<dyn Clock>,
    /// Reads and writes more than the caches hold.
    filler: Sequential,
    filling: Tensor,
    spans: Vec<[usize; 2]>,
}

impl Timer {
    /// A timer that moves `filling` numbers through the caches, several times, before each pass.
    pub(crate) fn new(place: Place, filling: usize) -> Result<Self> {
        let mut filler = Sequential::new(vec![Box::new(Gelu::new("filler", GeluForm::Tanh))]);
        filler.move_to(place)?;
        let clock = filler.clock()?;
        Ok(Self {
            clock: clock.ok_or_else(|| Error::other(format!("{} has no clock: name a GPU", place.device)))?,
            filling: filler.load(Tensor::zeros(&[filling]))?,
            filler,
            spans: Vec::new(),
        })
    }

    /// A copy of the tensor's size in memory of its own.
    pub(crate) fn fresh(&mut self, like: &Tensor) -> Result<Tensor> {
        self.filler.forward(EVALUATE, like.clone()).map(|(fresh, _)| fresh)
    }

    /// Times one pass.
    pub(crate) fn time<T>(&mut self, pass: impl FnOnce() -> Result<T>) -> Result<T> {
        for _ in 0..FILLS {
            self.fresh(&self.filling.clone())?;
        }
        let from = self.clock.mark()?;
        let output = pass()?;
        self.spans.push([from, self.clock.mark()?]);
        Ok(output)
    }

    /// The seconds of each pass since the last call. Waits until all work is done.
    pub(crate) fn read(&mut self) -> Result<Vec<f64>> {
        while !self.filler.is_idle()? {
            std::thread::yield_now();
        }
        let spans = std::mem::take(&mut self.spans);
        let seconds = spans.into_iter().map(|[from, to]| self.clock.seconds(from, to));
        let seconds = seconds.collect();
        self.clock.reset();
        seconds
    }
}
