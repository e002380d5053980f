//! Everything that can go wrong, with where it happened: a file for each part of the engine, and here what all parts share.

mod call;
mod checkpoint;
mod command;
mod config;
mod data;
mod fabric;
mod launch;
mod mesh;
pub mod plan;
mod profile;
mod run;
pub mod schedule;
mod schedule_file;
mod value;

pub use call::{CallError, EndsNow, WaitingRank};
pub use checkpoint::{CheckpointError, Damage, Difference, KnownData, Part, PlaceProblem};
pub use command::{Advice, CommandError, OutProblem, PromptProblem};
pub use config::{ConfigError, MeantKey, Origin, ProcessesProblem};
pub use data::{DataError, FileProblem, FolderProblem};
pub use fabric::FabricError;
pub use launch::{Giver, LaunchError, ParameterPlace};
pub use mesh::MeshError;
pub use plan::PlanError;
pub use profile::{CostsProblem, ProfileError};
pub use run::{Holder, RunError};
pub use schedule::ScheduleError;
pub use schedule_file::ScheduleFileProblem;
pub use value::ValueProblem;

use std::any::Any;
use std::path::PathBuf;

use pipewright_stages::ErrorKind;

use crate::id::{Rank, WorldRank};

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong and where.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A schedule, or a placement, that cannot be.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    /// Costs, or a search for a schedule, that cannot give one.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A config, or a value that was set in one, that cannot be used.
    #[error(transparent)]
    Config(Box<ConfigError>),
    /// Parts of a pipeline that do not fit together. Nothing was started.
    #[error(transparent)]
    Launch(Box<LaunchError>),
    /// A call of a running pipeline that cannot be done.
    #[error(transparent)]
    Call(#[from] CallError),
    /// Processes that cannot find each other, or a link that cannot carry what it is given.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// A run directory that cannot be used.
    #[error(transparent)]
    Run(#[from] RunError),
    /// Measured costs that cannot be used, or ranks whose costs cannot be measured.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// Arguments of a command that cannot be used.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// Ranks, processes and devices that do not go together.
    #[error(transparent)]
    Mesh(#[from] MeshError),
    /// An action of a rank failed while a step ran.
    #[error("rank {rank}, action {index} ({action}): {kind}")]
    Action {
        /// The rank whose action failed.
        rank: Rank,
        /// The action's place in the rank's list, from 0.
        index: usize,
        /// The action in text form, such as `2F5`.
        action: String,
        /// What happened.
        kind: Box<Error>,
    },
    /// A stage or layer failed.
    #[error(transparent)]
    Stage(#[from] pipewright_stages::Error),
    /// A stage panicked.
    #[error("panicked: {0}")]
    Panicked(String),
    /// The rank at the other end of a link has stopped.
    #[error("rank {0} has stopped")]
    PeerGone(WorldRank),
    /// Another process of the run has failed.
    #[error("process {process}: {cause}")]
    Process {
        /// The process that failed.
        process: u32,
        /// What it said.
        cause: String,
    },
    /// Another process of the run has ended before its time, without saying why.
    #[error("process {0} has stopped without a word: it was killed, or its machine or the network failed")]
    ProcessGone(u32),
    /// The loss or the gradient is NaN or infinite; the weights are those from before the step.
    #[error("step {step}: {what}; the weights are those from before this step")]
    NotFinite {
        /// The step, from 0.
        step: u64,
        /// What is not finite, and where it first was.
        what: String,
    },
    /// Data that cannot be read as what it was said to be; names the file.
    #[error(transparent)]
    Data(#[from] DataError),
    /// A checkpoint that cannot be loaded or saved; names the file and the parameter.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The operating system refused; says what was being done to which file.
    #[error("cannot {what} {}: {source}", path.display())]
    Io {
        /// What was being done, such as "read".
        what: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The pipeline has stopped, after an earlier failure or because it was told to.
    #[error("the pipeline has stopped{0}")]
    Stopped(String),
}

// In boxes: a result of every action is as large as the largest error.
impl From<ConfigError> for Error {
    fn from(error: ConfigError) -> Self {
        Self::Config(Box::new(error))
    }
}

impl From<LaunchError> for Error {
    fn from(error: LaunchError) -> Self {
        Self::Launch(Box::new(error))
    }
}

impl Error {
    /// The same failure with the action it happened in; a place that is already known stays.
    #[must_use]
    pub(crate) fn at_action(self, rank: Rank, index: usize, action: &impl ToString) -> Self {
        match self {
            Self::Action { .. } => self,
            kind => Self::Action {
                rank,
                index,
                action: action.to_string(),
                kind: Box::new(kind),
            },
        }
    }

    /// Whether it only tells that something else has failed before.
    pub(crate) fn is_echo(&self) -> bool {
        match self {
            Self::PeerGone(_) | Self::Stopped(_) | Self::Process { .. } | Self::ProcessGone(_) => true,
            Self::Action { kind, .. } => kind.is_echo(),
            _ => false,
        }
    }

    /// Whether a device has not as much memory as was wanted.
    pub(crate) fn is_out_of_memory(&self) -> bool {
        match self {
            Self::Action { kind, .. } => kind.is_out_of_memory(),
            Self::Stage(error) => matches!(error.kind, ErrorKind::OutOfMemory { .. }),
            Self::Launch(error) => {
                let LaunchError::Unbuildable { source, .. } = error.as_ref() else {
                    return false;
                };
                matches!(source.kind, ErrorKind::OutOfMemory { .. })
            }
            _ => false,
        }
    }

    /// Whether it refuses arguments, a config, a schedule or a plan before any work began.
    pub(crate) fn is_refusal(&self) -> bool {
        if let Self::Fabric(error) = self {
            return error.is_refusal();
        }
        matches!(
            self,
            Self::Schedule(_)
                | Self::Plan(_)
                | Self::Config(_)
                | Self::Launch(_)
                | Self::Mesh(_)
                | Self::Profile(_)
                | Self::Run(_)
                | Self::Command(_)
        )
    }

    /// Turns an I/O failure into an error that names what was being done to which file.
    pub fn io(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { what, path, source }
    }
}

/// What a panic said.
pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "without a message".to_owned())
}
