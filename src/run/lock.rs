//! The lock of a run directory: only one process trains there.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::files::now;
use crate::error::{Holder, RunError};
use crate::{Error, Result};

/// The lock's file in a run directory.
pub(super) const LOCK: &str = "lock";

/// A lock. The system releases it when the process ends, for whatever reason.
#[derive(Debug)]
pub(super) struct Lock {
    file: File,
    path: PathBuf,
}

impl Lock {
    /// Takes the lock of a run directory. The directory must exist.
    pub(super) fn take(run: &Path) -> Result<Self> {
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
        Ok(Self { file, path })
    }

    /// Whether the file is still at its path. It is not if the run directory was removed or moved.
    pub(super) fn is_in_place(&self) -> bool {
        let ids = |of: fs::Metadata| (of.dev(), of.ino());
        let here = fs::metadata(&self.path).map(ids).ok();
        here.is_some() && here == self.file.metadata().map(ids).ok()
    }
}

/// Writes who holds the lock.
fn sign(file: &mut File) -> std::io::Result<()> {
    let holder = Holder {
        pid: std::process::id(),
        host: gethostname::gethostname().to_string_lossy().into_owned(),
        since: now(),
    };
    let text = serde_json::to_string(&holder).expect("a number and texts always serialise");
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(text.as_bytes())
}
