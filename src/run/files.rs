//! Files that are replaced as a whole and survive a power failure.

use std::fs::{File, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::SystemTime;

use crate::{Error, Result};

/// Writes a file under another name, waits until the disk has it, and renames it. After a failure the old
/// file is still whole.
pub(super) fn replace(path: &Path, text: &str) -> Result<()> {
    let folder = path.parent().expect("a file of a run is in the run directory");
    let write = || {
        let mut file = tempfile::Builder::new()
            .permissions(Permissions::from_mode(0o666))
            .tempfile_in(folder)?;
        file.write_all(text.as_bytes())?;
        file.as_file().sync_all()?;
        file.persist(path)?;
        sync_folder(folder)
    };
    write().map_err(Error::io("write", path))
}

/// Waits until the disk has a folder's entries.
pub(super) fn sync_folder(folder: &Path) -> std::io::Result<()> {
    File::open(folder)?.sync_all()
}

/// The time, as in `2026-01-31T12:00:00Z`.
pub(super) fn now() -> String {
    humantime::format_rfc3339_seconds(SystemTime::now()).to_string()
}
