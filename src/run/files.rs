//! Files of a run that somebody removes while they are open.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Seek};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::SystemTime;

use crate::{Result, whole};

/// Makes a file again that was removed or replaced while it was `open`, with all that was written to it.
/// Returns whether that was so: then `open` is the new one, which is written at its end.
pub(super) fn restore(open: &mut File, path: &Path) -> Result<bool> {
    match is_same(open, path) {
        Ok(true) => return Ok(false),
        // If the file system does not answer, the run continues.
        Err(error) if !is_gone(&error) => return Ok(false),
        Ok(false) | Err(_) => {}
    }
    whole::make(path, |file| {
        open.rewind()?;
        io::copy(open, file).map(drop)
    })?;
    let reopened = OpenOptions::new().read(true).append(true).open(path);
    *open = reopened.map_err(crate::Error::io("open", path))?;
    Ok(true)
}

/// Whether an open file or directory is still the one at this path.
pub(super) fn is_same(open: &File, path: &Path) -> io::Result<bool> {
    let ids = |of: Metadata| (of.dev(), of.ino());
    Ok(ids(fs::metadata(path)?) == ids(open.metadata()?))
}

/// Whether the error says that there is nothing at a path.
pub(super) fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

/// The time, as in `2026-01-31T12:00:00Z`.
pub(super) fn now() -> String {
    humantime::format_rfc3339_seconds(SystemTime::now()).to_string()
}
