//! The files that `--out` names: which ones may be replaced, and how they are written.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::error::{CommandError, OutProblem};
use crate::profile::Measured;
use crate::report;
use crate::{Error, Result};

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
        let out = Self {
            path: path.to_owned(),
            replace,
        };
        out.may_replace()?;
        let folder = out.folder();
        if !folder.is_dir() {
            return Err(out.refuse(OutProblem::NoFolder(folder.to_owned())));
        }
        let trial = out.partial();
        File::create(&trial).map_err(|error| out.refuse(OutProblem::Unwritable(error)))?;
        fs::remove_file(&trial).map_err(|error| out.refuse(OutProblem::Unwritable(error)))?;
        Ok(out)
    }

    /// Writes the file completely, or not at all.
    ///
    /// # Errors
    /// [`Error::Io`] when the system refuses. As [`Out::check`] too, since others may have written the file
    /// meanwhile.
    pub(super) fn write(&self, text: &str) -> Result<()> {
        self.may_replace()?;
        let partial = self.partial();
        let written = write_through(&partial, text).and_then(|()| fs::rename(&partial, &self.path));
        written.map_err(|error| {
            let _ = fs::remove_file(&partial);
            Error::io("write", &self.path)(error)
        })
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

    fn folder(&self) -> &Path {
        match self.path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        }
    }

    /// The name of the file until it is complete. It differs between processes.
    fn partial(&self) -> PathBuf {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        self.path
            .with_file_name(format!(".{name}.{}.partial", std::process::id()))
    }
}

/// Writes a file and waits until it is on the disk.
fn write_through(path: &Path, text: &str) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}
