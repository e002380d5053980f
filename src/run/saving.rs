//! What a run knows of its checkpoints.

use super::best::BestSoFar;

/// The checkpoints of a run.
#[derive(Debug)]
pub(super) struct Saving {
    /// The newest one on the disk: the steps after which it was made.
    pub(super) saved: Option<u64>,
    /// The best one on the disk.
    pub(super) best: BestSoFar,
    pub(super) on_its_way: Option<OnItsWay>,
    /// Checkpoints after this number of steps or more are not yet known to be good.
    pub(super) unproven: u64,
    /// The seconds for which the steps have stood still.
    pub(super) stalled: f64,
}

/// A checkpoint that is written while the next steps run.
#[derive(Debug)]
pub(super) struct OnItsWay {
    /// The steps done.
    pub(super) step: u64,
    /// The best checkpoint when it is on the disk.
    pub(super) best: BestSoFar,
    /// The seconds for which the steps stood still.
    pub(super) stalled: f64,
}

impl Saving {
    /// Of a run that begins or continues after `done` steps. `saved`: whether that checkpoint is there.
    pub(super) fn begin(done: u64, saved: bool, best: BestSoFar) -> Self {
        Self { saved: saved.then_some(done), best, on_its_way: None, unproven: done, stalled: 0.0 }
    }

    /// After the loss of a process: none is on its way any more.
    pub(super) fn go_on(&mut self, saved: Option<u64>, unproven: u64) {
        self.on_its_way = None;
        (self.saved, self.unproven) = (saved, unproven);
    }

    /// Forgets the best checkpoint if it is the one after `step` steps. Returns what is the best one now.
    pub(super) fn forget(&mut self, step: u64) -> &BestSoFar {
        self.best.forget(step);
        &self.best
    }
}

/// Whether something that happens every `every` steps happens after `done` steps. With 0 it never happens.
pub(super) fn is_due(done: u64, every: u64) -> bool {
    every > 0 && done.is_multiple_of(every)
}
