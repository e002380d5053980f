//! Brings a copy of a checkpoint into a run directory.

use std::fs;

use super::folder::{CHECKPOINTS, RunDir};
use super::lock::{LOCK, Lock};
use crate::checkpoint::{Stored, named_step};
use crate::error::RunError;
use crate::store::Fetching;
use crate::{Error, Result};

impl RunDir {
    /// Brings a copy of a checkpoint into the directory, as one of its checkpoints. A run that is resumed
    /// then continues from it. If the directory has a checkpoint after as many steps, or after more, nothing
    /// is fetched. The directory is made, if it does not exist. Returns whether something was fetched. `tell`
    /// hears how far this is.
    ///
    /// # Errors
    /// [`Error::Run`] when a process trains there, or when what is there is not a run; whatever
    /// [`Stored::fetch`] returns.
    pub fn fetch(&self, copy: &Stored, tell: &mut dyn FnMut(Fetching<'_>)) -> Result<bool> {
        let path = self.path();
        if !self.holds_run()? && !self.may_begin()? {
            let path = path.display();
            return Err(RunError::new(format!(
                "the folder {path} is not empty, and what is in it is not a run: nothing was changed; name \
                 another with --run-dir DIR"
            ))
            .into());
        }
        let newest = self.last()?.and_then(|newest| named_step(&newest));
        if newest.is_some_and(|newest| newest >= copy.step()) {
            return Ok(false);
        }
        fs::create_dir_all(path).map_err(Error::io("create", path))?;
        let _lock = Lock::take(path)?;
        copy.fetch(&self.checkpoint(copy.step()), tell)?;
        Ok(true)
    }

    /// Whether a checkpoint may be put there: nothing is there, or what an earlier fetch left that was
    /// killed.
    fn may_begin(&self) -> Result<bool> {
        if self.is_free()? {
            return Ok(true);
        }
        for entry in fs::read_dir(self.path()).map_err(Error::io("list", self.path()))? {
            let name = entry.map_err(Error::io("list", self.path()))?.file_name();
            if name != LOCK && name != CHECKPOINTS {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
