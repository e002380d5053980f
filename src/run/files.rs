//! Files that are replaced as a whole and survive a power failure.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::{Error, Result};

/// Writes a file under another name, waits until the disk has it, and renames it. After a failure the old
/// file is still whole.
pub(super) fn replace(path: &Path, text: &str) -> Result<()> {
    let folder = path.parent().expect("a file of a run is in the run directory");
    let partial = partial(path);
    let write = || {
        let mut file = File::create(&partial)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&partial, path)?;
        sync_folder(folder)
    };
    write().map_err(|error| {
        // The user is told why the file could not be written. A failure here would only hide that.
        let _ = fs::remove_file(&partial);
        Error::io("write", path)(error)
    })
}

/// The path at which a file is written before it is renamed. It is always the same path. So the next write
/// replaces what a killed process has left.
pub(super) fn partial(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.partial"))
}

/// Waits until the disk has a folder's entries.
pub(super) fn sync_folder(folder: &Path) -> std::io::Result<()> {
    File::open(folder)?.sync_all()
}

/// The time, as in `2026-01-31T12:00:00Z`.
pub(super) fn now() -> String {
    humantime::format_rfc3339_seconds(SystemTime::now()).to_string()
}
