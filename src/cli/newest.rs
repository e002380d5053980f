//! The checkpoint that a path means.

use std::path::{Path, PathBuf};

use crate::Result;
use crate::error::CommandError;
use crate::run::RunDir;

/// The checkpoint at a path: the path itself, or the newest one of a run.
pub(super) fn newest(path: &Path) -> Result<PathBuf> {
    if path.join("state.json").exists() {
        return Ok(path.to_owned());
    }
    let newest = RunDir::at(path).checkpoints()?.pop();
    let path = path.to_owned();
    Ok(newest.ok_or(CommandError::NoCheckpoint { path })?)
}
