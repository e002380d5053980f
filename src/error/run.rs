//! A run that cannot begin or continue.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::Error;

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
    /// A new run was to begin in a folder that holds other things.
    #[error(
        "the folder {} is not empty, and what is in it is not a run: nothing was changed; name another with \
         --run-dir DIR or --set train.name=NAME",
        .0.display()
    )]
    NotEmpty(PathBuf),
    /// A run was to be resumed in a folder that does not exist or is empty.
    #[error("there is no run in {} to resume: leave out --resume to begin one", .0.display())]
    Nothing(PathBuf),
    /// A run was to be resumed in a folder that holds other things.
    #[error(
        "there is no run in {} to resume: the folder has no file run.json, so what is in it is not a run; \
         nothing was changed",
        .0.display()
    )]
    NotARun(PathBuf),
    /// The checkpoints of a run are no longer there, so there is nothing to resume.
    #[error(
        "the run in {} had checkpoints, and none of them is there any more: nothing was changed; put one \
         back, or begin another run in another directory with --run-dir DIR",
        .0.display()
    )]
    NoCheckpoint(PathBuf),
    /// The newest checkpoint cannot be used.
    #[error(
        "{source}; {}",
        match older {
            Some(older) => format!(
                "move the folder {} out of the run directory to continue from {}",
                newest.display(),
                older.display()
            ),
            None => "there is no earlier one: begin another run, without --resume and in another \
                     directory"
                .to_owned(),
        }
    )]
    Unusable {
        /// The newest checkpoint.
        newest: PathBuf,
        /// The checkpoint before it.
        older: Option<PathBuf>,
        /// What is wrong with the newest one.
        source: Box<Error>,
    },
    /// A report was asked for a folder that has no numbers of a run.
    #[error(
        "there is no run in {}: it has no file metrics.jsonl; name the folder of a run, such as \
         runs/gpt-text",
        .0.display()
    )]
    NoNumbers(PathBuf),
    /// The file that marks a run directory cannot be read.
    #[error(
        "{} is not the mark of a run that this program knows: {source}; {}",
        path.display(),
        match newest {
            Some(newest) => format!(
                "move the file away, and --resume goes on from {} and writes it anew",
                newest.display()
            ),
            None => "there is no checkpoint to go on from: begin another run in another directory with \
                     --run-dir DIR".to_owned(),
        }
    )]
    Mark {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: serde_json::Error,
        /// The newest checkpoint.
        newest: Option<PathBuf>,
    },
    /// A run directory was made by another version of this program.
    #[error("{} has format {found}, this program reads format {known}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// The format it has.
        found: u32,
        /// The format that this program reads.
        known: u32,
    },
    /// The processes of a run do not see the same directory.
    #[error(
        "{} is not there, although process 0 has written it: the processes of a run need one file system for \
         its directory",
        .0.display()
    )]
    NotShared(PathBuf),
    /// A process sees another directory than process 0, for example a copy.
    #[error(
        "{} is not the file that process 0 has just written: the processes of a run need one file system for \
         its directory, and copies of it do not do",
        .0.display()
    )]
    Copied(PathBuf),
    /// There are fewer steps left than should be traced.
    #[error(
        "--trace={asked}: {done} of {last} steps are done, so {} are to come, and the first {settling} of \
         these are not traced: {}",
        last.saturating_sub(*done),
        match last.saturating_sub(done + settling) {
            0 => format!("let the run go on for at least {} steps", settling + 1),
            most => format!("trace at least 1 and at most {most}"),
        }
    )]
    Trace {
        /// The steps to trace.
        asked: u64,
        /// The steps done.
        done: u64,
        /// The steps of the whole run.
        last: u64,
        /// The steps at the beginning that are not traced.
        settling: u64,
    },
    /// Several processes run a command that would do the same in each.
    #[error(
        "`{command}` runs in one process, but {name} is {processes}: unset it, or start one process (only \
         `train` and `profile` run in several)"
    )]
    OneProcess {
        /// The command.
        command: String,
        /// The variable with the number of processes.
        name: &'static str,
        /// The processes of the environment.
        processes: u32,
    },
    /// A checkpoint does not fit, and settings have changed since it was saved.
    #[error("{source}; since that checkpoint was saved, these settings have changed: {}", changes.join(", "))]
    Changed {
        /// The settings, each as `key: old -> new`.
        changes: Vec<String>,
        /// What does not fit.
        source: Box<Error>,
    },
    /// The address that metrics should be served on cannot be used.
    #[error("metrics.listen: cannot serve metrics on {address}: {source}; choose a free port")]
    Metrics {
        /// The address.
        address: SocketAddr,
        /// Why it cannot be used.
        source: std::io::Error,
    },
    /// The address that a page should be served on cannot be used.
    #[error("cannot serve the page on {address}: {source}; choose another port with --serve=PORT")]
    Serve {
        /// The address.
        address: SocketAddr,
        /// Why it cannot be used.
        source: std::io::Error,
    },
    /// The system does not let the process watch for signals.
    #[error("cannot watch for interruptions: {source}")]
    Signals {
        /// The system's reason.
        source: std::io::Error,
    },
    /// A metric of the loss has the name of another number of a step.
    #[error(
        "a metric of the loss is named `{0}`, and metrics.jsonl has another number of that name: give the \
         metric another name"
    )]
    MetricName(String),
    /// A run was asked to keep 0 checkpoints.
    #[error("a run that keeps 0 checkpoints leaves nothing to resume from: keep 1 or more")]
    KeepsNothing,
    /// The directory of the run was removed, moved or replaced during the run.
    #[error(
        "the run directory {} was removed, moved or replaced while this run trained in it: the run ends \
         here, and its steps since the last checkpoint are lost",
        .0.display()
    )]
    Gone(PathBuf),
    /// The lock's file was removed or replaced during the run. This is only a warning.
    #[error("{} was removed or replaced: a new one was made and locked", .0.display())]
    LockRemoved(PathBuf),
    /// A file of the run was removed or replaced during the run. This is only a warning.
    #[error("{} was removed or replaced: it was written again", .0.display())]
    FileRemoved(PathBuf),
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
}

impl RunError {
    /// The same error. If it is one of a checkpoint, it names the settings that have changed since.
    pub fn name_changes(changes: Vec<String>, error: Error) -> Error {
        match error {
            Error::Checkpoint(_) if !changes.is_empty() => {
                let source = Box::new(error);
                Self::Changed { changes, source }.into()
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
