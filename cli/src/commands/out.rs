//! The files and folders that a command writes: which ones may be replaced, and how they are written.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

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
    /// The error names the file, and says why.
    pub(super) fn check(path: &Path, replace: Replace) -> Result<Self> {
        let out = Self { path: path.to_owned(), replace };
        out.may_replace()?;
        let folder = whole::parent(path);
        if !folder.is_dir() {
            return Err(no_folder(path, folder));
        }
        let trial = whole::partial(path);
        File::create(&trial)
            .and_then(|_| fs::remove_file(&trial))
            .map_err(|error| refused(path, &format!("cannot be written: {error}")))?;
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
            "this is a folder: name a file"
        } else if path.symlink_metadata().is_err() {
            return Ok(());
        } else if self.replace == Replace::Nothing {
            EXISTS
        } else if self.replace == Replace::Page {
            match fs::read_to_string(path) {
                Ok(text) if text.contains(report::MARK) => return Ok(()),
                _ => {
                    "this file exists and is no page of a run, so it is not replaced: name another, or \
                     remove it"
                }
            }
        } else if !path.is_file() || Measured::read(path).is_err() {
            "this file exists and is no file of costs, so it is not replaced: name another, or remove it"
        } else {
            return Ok(());
        };
        Err(refused(path, problem))
    }
}

/// What is said of a file that exists, and must not be replaced.
pub(super) const EXISTS: &str = "this file exists: name another, or remove it";

/// A file of `--out` that cannot be written, or must not be replaced.
pub(super) fn refused(path: &Path, problem: &str) -> Error {
    Error::refused(format!("--out {}: {problem}", path.display()))
}

/// The folder to write into does not exist.
pub(super) fn no_folder(path: &Path, folder: &Path) -> Error {
    refused(path, &format!("there is no folder {}: make it, or name another", folder.display()))
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
