//! Opening files that somebody else made.

use std::fs::{self, File};
use std::path::Path;

use crate::error::{PretrainedError, Result};

/// Opens a regular file and returns its length. Others are refused before they are opened: opening a pipe
/// waits until somebody writes into it, and a device may never end.
pub(super) fn open(path: &Path) -> Result<(File, u64)> {
    let unreadable = |source| PretrainedError::Unreadable {
        path: path.to_owned(),
        source,
    };
    let metadata = fs::metadata(path).map_err(unreadable)?;
    if !metadata.is_file() {
        let path = path.to_owned();
        return Err(PretrainedError::NotRegular { path }.into());
    }
    let file = File::open(path).map_err(unreadable)?;
    Ok((file, metadata.len()))
}
