//! Removes old checkpoints, except those that a run may need.

use std::path::{Path, PathBuf};

use super::best::Best;
use super::folder::RunDir;
use crate::{Result, checkpoint};

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

    /// Removes all checkpoints except those that are kept, the best, and the newest that is known to be good.
    pub(super) fn prune(&self, kept: Retention, best: Option<Best>, unproven: u64) -> Result<()> {
        let (all, good) = (self.checkpoints()?, self.newest_good(unproven)?);
        let best = best.map(|best| self.checkpoint(best.step));
        all[..all.len().saturating_sub(kept.newest.max(1))]
            .iter()
            .filter(|old| {
                Some(*old) != good.as_ref() && Some(*old) != best.as_ref() && !kept.is_for_ever(old)
            })
            .try_for_each(|old| checkpoint::remove(old))
    }
}
