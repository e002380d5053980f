//! What a run knows of its checkpoints, and which old ones it removes.

use std::path::{Path, PathBuf};

use super::directory::folder::RunDir;
use super::validation::{Best, BestSoFar};
use crate::{Result, checkpoint};

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
    /// For a run that begins or continues after `done` steps. `saved`: whether that checkpoint is there.
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

/// Which checkpoints are kept besides the best one and the newest that is known to be good.
#[derive(Clone, Copy, Debug)]
pub(super) struct Retention {
    /// How many of the newest.
    pub(super) newest: usize,
    /// For ever: the ones after multiples of this number of steps. 0: none.
    pub(super) every: u64,
}

impl Retention {
    /// Whether the checkpoint in this folder is kept for ever.
    fn is_for_ever(self, folder: &Path) -> bool {
        self.every > 0 && checkpoint::named_step(folder).is_some_and(|step| step.is_multiple_of(self.every))
    }
}

impl RunDir {
    /// The newest checkpoint after fewer than `unproven` steps. It is known to be good: a later step began
    /// with its weights, and all its numbers were finite. Those after more steps are not yet known to be.
    pub(super) fn newest_good(&self, unproven: u64) -> Result<Option<PathBuf>> {
        let is_good = |path: &PathBuf| checkpoint::named_step(path).is_some_and(|step| step < unproven);
        Ok(self.checkpoints()?.into_iter().rfind(is_good))
    }

    /// Removes all checkpoints except those that are kept, the best, the newest that is known to be good, and
    /// the one that is being copied.
    pub(super) fn prune(
        &self,
        kept: Retention,
        best: Option<Best>,
        unproven: u64,
        copied: Option<u64>,
    ) -> Result<()> {
        let (all, good) = (self.checkpoints()?, self.newest_good(unproven)?);
        let [best, copied] =
            [best.map(|best| best.step), copied].map(|step| step.map(|step| self.checkpoint(step)));
        all[..all.len().saturating_sub(kept.newest.max(1))]
            .iter()
            .filter(|old| {
                let stay = [&good, &best, &copied].into_iter().flatten();
                stay.into_iter().all(|one| one != *old) && !kept.is_for_ever(old)
            })
            .try_for_each(|old| checkpoint::remove(old))
    }
}
