//! A run that cannot begin or continue.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{Error, Problem};

/// A run that cannot begin or continue. The error names the run directory, or the file in it.
///
/// All but [`RunError::Gone`] are reported before the first step. Nothing in the directory has changed then.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// Another process trains in this directory.
    #[error(
        "the run directory {} is in use{}: wait until that run ends, or train in another directory with \
         --run-dir DIR",
        path.display(),
        holder.as_ref().map_or(String::new(), |holder| format!(" by {holder}"))
    )]
    InUse {
        /// The run directory.
        path: PathBuf,
        /// The process that trains there, if known.
        holder: Option<Holder>,
    },
    /// A new run was to begin in the directory of another run.
    #[error(
        "the run directory {} exists: continue it with --resume, or name another with --run-dir DIR or --set \
         train.name=NAME",
        .0.display()
    )]
    Exists(PathBuf),
    /// A run was to be resumed in a folder that does not exist or is empty.
    #[error("there is no run in {} to resume: leave out --resume to begin one", .0.display())]
    Nothing(PathBuf),
    /// The checkpoints of a run are no longer there, so there is nothing to resume.
    #[error(
        "the run in {} had checkpoints, and none of them is there any more: nothing was changed; put one \
         back, or begin another run in another directory with --run-dir DIR",
        .0.display()
    )]
    NoCheckpoint(PathBuf),
    /// The processes of a run do not see the same directory.
    #[error(
        "{} is not there, although process 0 has written it: the processes of a run need one file system for \
         its directory",
        .0.display()
    )]
    NotShared(PathBuf),
    /// The directory of the run was removed, moved or replaced during the run.
    #[error(
        "the run directory {} was removed, moved or replaced while this run trained in it: the run ends \
         here, and its steps since the last checkpoint are lost",
        .0.display()
    )]
    Gone(PathBuf),
    /// The lock's file was removed or replaced during the run, and another process has locked the new one.
    #[error(
        "the lock of the run directory {} was removed or replaced, and another run has begun there{}: this \
         run ends here, and its steps since the last checkpoint are lost",
        path.display(),
        holder.as_ref().map_or(String::new(), |holder| format!(", of {holder}"))
    )]
    Taken {
        /// The run directory.
        path: PathBuf,
        /// The process that trains there now, if known.
        holder: Option<Holder>,
    },
    /// Any other failure, in words.
    #[error(transparent)]
    Problem(Problem),
}

impl RunError {
    /// The system does not let the process watch for signals.
    pub fn no_signals(source: std::io::Error) -> Self {
        Self::because(format!("cannot watch for interruptions: {source}"), source)
    }

    /// The same error. If it is one of a checkpoint, it names the settings that have changed since.
    pub fn name_changes(changes: Vec<String>, error: Error) -> Error {
        match error {
            Error::Checkpoint(_) if !changes.is_empty() => {
                let changes = changes.join(", ");
                let text = format!(
                    "{error}; since that checkpoint was saved, these settings have changed: {changes}"
                );
                Self::because(text, error).into()
            }
            error => error,
        }
    }
}

/// The process that holds the lock of a run directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Its number on its machine.
    pub pid: u32,
    /// The name of its machine.
    pub host: String,
    /// When it took the lock, as in `2026-01-31T12:00:00Z`.
    pub since: String,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pid, host, since } = self;
        write!(f, "process {pid} on host {host}, since {since}")
    }
}
