//! The checkpoint that a path means.

use std::path::{Path, PathBuf};

use crate::Result;
use crate::error::CommandError;
use crate::run::RunDir;

/// The checkpoint at a path: the path itself, or the newest one of a run.
pub(super) fn newest(path: &Path) -> Result<Option<PathBuf>> {
    if path.join("state.json").exists() {
        return Ok(Some(path.to_owned()));
    }
    Ok(RunDir::at(path).checkpoints()?.pop())
}

/// As [`newest`], for a command that also takes a folder with a model, where there was none.
pub(super) fn newest_or_model(path: &Path) -> Result<PathBuf> {
    let path = path.to_owned();
    Ok(newest(&path)?.ok_or(CommandError::NoModel { path })?)
}
