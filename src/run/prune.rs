//! Removes old checkpoints, except those that a run may need.

use std::path::PathBuf;

use super::best::Best;
use super::folder::RunDir;
use crate::{Result, checkpoint};

impl RunDir {
    /// The newest checkpoint that is known to be good after `done` steps: a later step began with its
    /// weights, and all its numbers were finite. The checkpoint after the last step is not yet known to be
    /// good.
    pub(super) fn newest_good(&self, done: u64) -> Result<Option<PathBuf>> {
        let unproven = self.checkpoint(done);
        Ok(self.checkpoints()?.into_iter().rfind(|path| *path != unproven))
    }

    /// Removes all checkpoints except the `keep` newest, the best, and the newest that is known to be good.
    pub(super) fn prune(&self, keep: usize, best: Option<Best>, done: u64) -> Result<()> {
        let (all, good) = (self.checkpoints()?, self.newest_good(done)?);
        let best = best.map(|best| self.checkpoint(best.step));
        all[..all.len().saturating_sub(keep.max(1))]
            .iter()
            .filter(|old| Some(*old) != good.as_ref() && Some(*old) != best.as_ref())
            .try_for_each(|old| checkpoint::remove(old))
    }
}
