//! Old checkpoints go, those that a run may need stay.

use std::fs;
use std::path::{Path, PathBuf};

use super::folder::{Best, RunDir};
use crate::{Error, Result, checkpoint};

/// What the name of a checkpoint that is being removed ends with.
const REMOVED: &str = "removed";

impl RunDir {
    /// The newest checkpoint that is known to be good when so many steps are done: a later step began with its
    /// weights, and all its numbers were finite. The checkpoint after the last step has yet to prove itself.
    pub(super) fn newest_good(&self, done: u64) -> Result<Option<PathBuf>> {
        let unproven = self.checkpoint(done);
        Ok(self.checkpoints()?.into_iter().rfind(|path| *path != unproven))
    }

    /// Removes all checkpoints but the `keep` newest, the best, and the newest that is known to be good.
    pub(super) fn prune(&self, keep: usize, best: Option<Best>, done: u64) -> Result<()> {
        let (all, good) = (self.checkpoints()?, self.newest_good(done)?);
        let best = best.map(|best| self.checkpoint(best.step));
        all[..all.len().saturating_sub(keep)]
            .iter()
            .filter(|old| Some(*old) != good.as_ref() && Some(*old) != best.as_ref())
            .try_for_each(|old| remove(old))
    }
}

/// Removes a checkpoint. Its name goes first, so that a kill leaves no half of one under that name.
pub(super) fn remove(folder: &Path) -> Result<()> {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    let aside = folder.with_file_name(format!(".{name}.{REMOVED}"));
    fs::rename(folder, &aside).map_err(Error::io("remove", folder))?;
    checkpoint::remove(&aside)
}

/// Removes what processes that were killed while they saved or removed a checkpoint left behind.
pub(super) fn sweep(checkpoints: &Path) -> Result<()> {
    for entry in fs::read_dir(checkpoints).map_err(Error::io("list", checkpoints))? {
        let path = entry.map_err(Error::io("list", checkpoints))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let Some((step, end)) = name.strip_prefix('.').and_then(|name| name.rsplit_once('.')) else {
            continue;
        };
        // A checkpoint that stepped aside is the only one when the new one never took its place.
        let replaced = end == "old" && checkpoints.join(step).exists();
        if step.starts_with("step-") && (replaced || end == "partial" || end == REMOVED) {
            checkpoint::remove(&path)?;
        }
    }
    Ok(())
}
