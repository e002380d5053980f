//! Opening files that somebody else made.

use std::fs::{self, File};
use std::path::Path;

use crate::error::{Error, Problem, Result};

/// Opens a regular file and returns its length. Others are refused before they are opened: opening a pipe
/// waits until somebody writes into it, and a device may never end.
pub(super) fn open(path: &Path) -> Result<(File, u64)> {
    let name = path.display();
    let unreadable =
        |source| Error::Pretrained(Problem::because(format!("cannot open `{name}`: {source}"), source));
    let metadata = fs::metadata(path).map_err(unreadable)?;
    if !metadata.is_file() {
        return Err(Error::pretrained(format!("`{name}` is not a regular file")));
    }
    let file = File::open(path).map_err(unreadable)?;
    Ok((file, metadata.len()))
}
