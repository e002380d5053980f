//! The lock of a hidden folder: two programs that save at one place do not write into one folder.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};

use crate::error::{CheckpointError, Error, Result};
use crate::system;

/// A folder that nobody else may write to or remove. The system releases the lock when the process ends, for
/// whatever reason. Where the file system has no locks, everybody gets one.
#[derive(Debug)]
pub(super) struct Lock {
    file: File,
    path: PathBuf,
}

impl Lock {
    /// Locks a folder, which must exist.
    ///
    /// # Errors
    /// [`CheckpointError`] when another holds the lock, or has just put another folder there.
    pub(super) fn take(path: &Path) -> Result<Self> {
        let file = system::open_folder(path).map_err(Error::io("open", path))?;
        let taken = !matches!(file.try_lock(), Err(TryLockError::WouldBlock));
        let path = path.to_owned();
        let lock = Self { file, path };
        // Perhaps somebody removed the folder, and made it again, before it was locked.
        if taken && lock.is_in_place() {
            return Ok(lock);
        }
        Err(CheckpointError::new(format!(
            "{} is being written: another program saves a checkpoint to the same place; give each its own \
             folder",
            lock.path.display()
        ))
        .into())
    }

    /// Whether the folder is still at its path.
    pub(super) fn is_in_place(&self) -> bool {
        system::is_at(&self.file, &self.path).unwrap_or(false)
    }
}
