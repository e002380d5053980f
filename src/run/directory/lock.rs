//! The lock of a run directory: only one process trains there.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

use super::files::{is_gone, now};
use crate::error::{Holder, RunError};
use crate::system::{is_at, open_folder};
use crate::{Error, Result};

/// The lock's file in a run directory.
pub(super) const LOCK: &str = "lock";

/// A lock. The system releases it when the process ends, for whatever reason.
#[derive(Debug)]
pub(super) struct Lock {
    /// The run directory. While it is open, no other directory can get its inode number.
    dir: File,
    file: File,
    run: PathBuf,
}

impl Lock {
    /// Takes the lock of a run directory. The directory must exist.
    pub(super) fn take(run: &Path) -> Result<Self> {
        Ok(Self {
            dir: open_folder(run).map_err(Error::io("open", run))?,
            file: take(run)?,
            run: run.to_owned(),
        })
    }

    /// What is in the file: who holds the lock, and since when. Empty if that could not be written.
    pub(super) fn signature(&mut self) -> String {
        let mut text = String::new();
        let read = self.file.rewind().and_then(|()| self.file.read_to_string(&mut text));
        read.map_or_else(|_| String::new(), |_| text)
    }

    /// Fails if the run directory was removed, moved or replaced.
    pub(super) fn check_place(&self) -> Result<()> {
        match is_at(&self.dir, &self.run) {
            Ok(true) => Ok(()),
            // If the file system does not answer, the run continues.
            Err(error) if !is_gone(&error) => Ok(()),
            Ok(false) | Err(_) => Err(RunError::Gone(self.run.clone()).into()),
        }
    }

    /// If the lock's file was removed or replaced, takes the lock again and returns a warning.
    ///
    /// # Errors
    /// [`RunError::Taken`] when another process has taken the lock in between.
    pub(super) fn keep(&mut self) -> Result<Option<Error>> {
        let path = self.run.join(LOCK);
        match is_at(&self.file, &path) {
            Ok(true) => return Ok(None),
            Err(error) if !is_gone(&error) => return Ok(None),
            Ok(false) | Err(_) => {}
        }
        match take(&self.run) {
            Ok(file) => {
                self.file = file;
                Ok(Some(
                    RunError::new(format!(
                        "{} was removed or replaced: a new one was made and locked",
                        path.display()
                    ))
                    .into(),
                ))
            }
            Err(Error::Run(error)) => match *error {
                RunError::InUse { path, holder } => Err(RunError::Taken { path, holder }.into()),
                error => Ok(Some(error.into())),
            },
            Err(error) => Ok(Some(error)),
        }
    }
}

/// Whether a process holds the lock of a run directory.
pub(super) fn is_held(run: &Path) -> bool {
    let lock = OpenOptions::new().write(true).open(run.join(LOCK));
    lock.is_ok_and(|file| matches!(file.try_lock(), Err(TryLockError::WouldBlock)))
}

/// The lock's file, locked. It is made if it does not exist.
fn take(run: &Path) -> Result<File> {
    let path = run.join(LOCK);
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)
        .map_err(Error::io("open", &path))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let text = fs::read_to_string(&path).unwrap_or_default();
            return Err(Error::from(RunError::InUse {
                path: run.to_owned(),
                holder: serde_json::from_str(&text).ok(),
            }));
        }
        Err(TryLockError::Error(error)) => return Err(Error::io("lock", &path)(error)),
    }
    // The lock also works without its holder's name, for example on a full disk.
    let _ = sign(&mut file);
    Ok(file)
}

/// Writes who holds the lock.
fn sign(file: &mut File) -> io::Result<()> {
    let holder = Holder {
        pid: std::process::id(),
        host: gethostname::gethostname().to_string_lossy().into_owned(),
        since: now(),
    };
    let text = serde_json::to_string(&holder).expect("a number and texts always serialise");
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(text.as_bytes())?;
    // Other machines read it.
    file.sync_all()
}
