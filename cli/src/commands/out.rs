//! The files and folders that a command writes: which ones may be replaced, and how they are written.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use crate::error::{CommandError, OutProblem};
use crate::profile::Measured;
use crate::report;
use crate::{Error, Result};
use pipewright::whole;

/// Which existing file may be replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Replace {
    /// A file of measured costs, because they can be measured again.
    Costs,
    /// A page of `report`, because it can be written again.
    Page,
    /// None.
    Nothing,
}

/// A file to be written.
#[derive(Debug)]
pub(super) struct Out {
    path: PathBuf,
    replace: Replace,
}

impl Out {
    /// Refuses a file that cannot be written or must not be replaced. It is checked before the work that
    /// makes its contents.
    ///
    /// # Errors
    /// [`CommandError::Out`].
    pub(super) fn check(path: &Path, replace: Replace) -> Result<Self> {
        let out = Self { path: path.to_owned(), replace };
        out.may_replace()?;
        let folder = whole::parent(path);
        if !folder.is_dir() {
            return Err(out.refuse(OutProblem::NoFolder(folder.to_owned())));
        }
        let trial = whole::partial(path);
        File::create(&trial).map_err(|error| out.refuse(OutProblem::Unwritable(error)))?;
        fs::remove_file(&trial).map_err(|error| out.refuse(OutProblem::Unwritable(error)))?;
        Ok(out)
    }

    /// Writes the file completely, or not at all.
    ///
    /// # Errors
    /// [`pipewright::Error::Io`] when the system refuses. As [`Out::check`] too: others may have written the
    /// file meanwhile.
    pub(super) fn write(&self, text: &str) -> Result<()> {
        self.may_replace()?;
        Ok(whole::write(&self.path, text)?)
    }

    fn may_replace(&self) -> Result<()> {
        let path = &self.path;
        let problem = if path.is_dir() {
            OutProblem::Folder
        } else if path.symlink_metadata().is_err() {
            return Ok(());
        } else if self.replace == Replace::Nothing {
            OutProblem::Exists
        } else if self.replace == Replace::Page {
            match fs::read_to_string(path) {
                Ok(text) if text.contains(report::MARK) => return Ok(()),
                _ => OutProblem::NoPage,
            }
        } else if !path.is_file() || Measured::read(path).is_err() {
            OutProblem::NoCosts
        } else {
            return Ok(());
        };
        Err(self.refuse(problem))
    }

    fn refuse(&self, problem: OutProblem) -> Error {
        let path = self.path.clone();
        CommandError::Out { path, problem }.into()
    }
}

/// Makes a folder that must not exist yet, completely or not at all. `fill` makes it under the name that it
/// is given.
///
/// # Errors
/// When it is there already; what `fill` returns, and [`pipewright::Error::Io`] when the system refuses.
pub(super) fn new_folder<T>(path: &Path, fill: impl FnOnce(&Path) -> Result<T>) -> Result<T> {
    if path.symlink_metadata().is_ok() {
        return Err(pipewright::Error::folder_exists(path).into());
    }
    whole::folder(path, fill)
}
