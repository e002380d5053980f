//! `pipewright verify`: checks that every byte of a checkpoint is as it was saved.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::key;
use super::saved::no_checkpoint;
use crate::error::Result;
use pipewright::checkpoint::Checkpoint;
use pipewright::run::RunDir;

/// Check that checkpoints are undamaged: compare every tensor, the headers and the description with their
/// checksums
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// A checkpoint, or a run's folder, to verify all its checkpoints
    folder: PathBuf,
}

/// Prints a line for each checkpoint. After a damaged one, the others are still verified.
pub(super) fn run(args: &Args) -> Result<ExitCode> {
    key::enter_for(&args.folder)?;
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

/// The checkpoints at a path.
fn checkpoints(path: &Path) -> Result<Vec<PathBuf>> {
    let of_run = RunDir::at(path).checkpoints()?;
    if !of_run.is_empty() {
        return Ok(of_run);
    }
    if path.join("state.json").exists() {
        return Ok(vec![path.to_owned()]);
    }
    Err(no_checkpoint(path))
}
