//! The folder in which tokens are kept.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use super::file::is_there;
use super::partial::remove_left;
use crate::checksum::Checksum;
use crate::error::{Error, Result};

/// The right to make a token file. The system ends it with the process, for whatever reason.
pub(super) struct Lock {
    path: PathBuf,
    _file: File,
}

impl Lock {
    /// Waits until nobody else has it. Where the file system has no locks, everybody gets it at once. What
    /// killed processes have left in the folder is removed.
    pub(super) fn take(tokens: &Path) -> Result<Self> {
        let folder = tokens.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(folder).map_err(Error::io("make", folder))?;
        let path = tokens.with_extension("lock");
        let file = loop {
            let file = File::create(&path).map_err(Error::io("write", &path))?;
            let is_locked = file.lock().is_ok();
            // Who had it before has removed the file, and another process may have made it again.
            if !is_locked || is_there(&file, &path) {
                break file;
            }
        };
        remove_left(folder, is_of_cache);
        Ok(Self { path, _file: file })
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Whether a file of this name is one of the cache's: its name begins with a checksum.
fn is_of_cache(name: &str) -> bool {
    let stem = name.split('.').next().unwrap_or_default();
    stem.parse::<Checksum>().is_ok()
}
