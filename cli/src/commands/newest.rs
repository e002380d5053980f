//! The checkpoint that a path means, and its config.

use std::path::{Path, PathBuf};

use crate::Result;
use crate::config::Config;
use crate::error::CommandError;
use pipewright::checkpoint::Checkpoint;
use pipewright::run::RunDir;

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

/// The config of the run that saved the checkpoint in a folder, with these settings changed.
///
/// # Errors
/// [`CommandError::NoConfig`]; otherwise as [`Config::parse`].
pub(super) fn config_of(folder: &Path, checkpoint: &Checkpoint, sets: &[String]) -> Result<Config> {
    if checkpoint.config().trim().is_empty() {
        let folder = folder.to_owned();
        return Err(CommandError::NoConfig { folder }.into());
    }
    let name = format!("the config in {}", folder.display());
    Config::parse(&name, checkpoint.config(), &[], sets)
}
