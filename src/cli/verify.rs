//! `pipewright verify`: whether every byte of a checkpoint is as it was saved.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::checkpoint::Checkpoint;
use crate::error::{CommandError, Result};
use crate::run::RunDir;

/// Compare checkpoints with their checksums: every tensor, the headers, the description
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// A checkpoint, or a run directory, of which all checkpoints are looked at
    folder: PathBuf,
}

/// Prints a line for each checkpoint. One that is damaged does not keep the others from being looked at.
pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let mut status = ExitCode::SUCCESS;
    for folder in checkpoints(&args.folder)? {
        match Checkpoint::open(&folder).and_then(|checkpoint| checkpoint.verify()) {
            Ok(verified) => super::print(&format!("{}: {verified}\n", folder.display()))?,
            Err(error) => {
                eprintln!("error: {error}");
                status = ExitCode::FAILURE;
            }
        }
    }
    Ok(status)
}

/// The checkpoints that a path names.
fn checkpoints(path: &Path) -> Result<Vec<PathBuf>> {
    let of_run = RunDir::at(path).checkpoints()?;
    if !of_run.is_empty() {
        return Ok(of_run);
    }
    let path = path.to_owned();
    if path.join("state.json").exists() {
        return Ok(vec![path]);
    }
    Err(CommandError::NoCheckpoint { path }.into())
}
