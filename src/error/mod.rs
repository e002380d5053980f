//! The errors of the engine. Each part has a file; this one has what they share.

mod call;
mod checkpoint;
mod data;
mod fabric;
mod launch;
mod loss;
mod not_finite;
mod pretrained;
mod restart;
mod run;
mod store;

pub use call::{CallError, EndsNow, WaitingRank};
pub use checkpoint::{CheckpointError, KnownData};
pub use data::DataError;
pub use fabric::FabricError;
pub(crate) use fabric::list;
pub use launch::LaunchError;
pub use loss::ProcessLoss;
pub use not_finite::{Finding, Found, NotFinite};
pub use pipewright_schedule::error::{CostOf, MeshError, Problem, ScheduleError, schedule};
pub use pretrained::download;
pub use restart::RestartError;
pub use run::{Holder, RunError};
pub use store::StoreError;

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

use pipewright_schedule::mesh::RankName;
use pipewright_stages::ErrorKind;

use crate::id::WorldRank;

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error: what went wrong, and where.
///
/// `Debug` writes the message too. So a `main` that returns an error shows it to people as it should be read.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A schedule or a placement that is wrong.
    #[error(transparent)]
    Schedule(Box<ScheduleError>),
    /// Costs, sizes or limits for which there is no schedule, cut or picture.
    #[error(transparent)]
    Plan(Problem),
    /// Parts of a pipeline that do not fit together. Nothing was started.
    #[error(transparent)]
    Launch(Box<LaunchError>),
    /// A call of a running pipeline that fails.
    #[error(transparent)]
    Call(Box<CallError>),
    /// A rank that was built again after a failure and cannot go on.
    #[error(transparent)]
    Restart(Box<RestartError>),
    /// Processes that cannot find each other or that differ, and wires that cannot be sent or received.
    #[error(transparent)]
    Fabric(Box<FabricError>),
    /// A run directory that cannot be used.
    #[error(transparent)]
    Run(Box<RunError>),
    /// Ranks, processes and devices that do not fit together.
    #[error(transparent)]
    Mesh(#[from] MeshError),
    /// An action of a rank failed while a step ran.
    #[error("{at}, action {index} ({action}): {kind}")]
    Action {
        /// The rank whose action failed.
        at: RankName,
        /// The action's place in the rank's list, from 0.
        index: usize,
        /// The action in text form, such as `2F5`.
        action: String,
        /// What happened.
        #[source]
        kind: Box<Error>,
    },
    /// A gradient is missing or has the wrong shape.
    #[error(transparent)]
    Gradient(Problem),
    /// A stage or layer failed.
    #[error(transparent)]
    Stage(#[from] pipewright_stages::Error),
    /// A stage panicked.
    #[error("panicked: {0}")]
    Panicked(String),
    /// A rank to which this one sends, or from which it receives, has stopped.
    #[error("rank {0} has stopped")]
    PeerGone(WorldRank),
    /// Another process of the run has failed.
    #[error("process {process}: {cause}")]
    Process {
        /// The process that failed.
        process: u32,
        /// Its message.
        cause: String,
    },
    /// Another process of the run has ended without giving a reason.
    #[error("process {process} {}: {loss}", loss.what())]
    ProcessGone {
        /// The process.
        process: u32,
        /// What is known of how it ended.
        loss: ProcessLoss,
    },
    /// The loss or the gradient is NaN or infinite. The weights have not changed in this step.
    #[error(
        "step {step}: {what}; the weights are those from before this step; a lower learning rate or clipped \
         gradients often help"
    )]
    NotFinite {
        /// The step, from 0.
        step: u64,
        /// What is not finite, and where it was found first.
        what: Box<NotFinite>,
    },
    /// Data that cannot be used. The error names the file.
    #[error(transparent)]
    Data(Box<DataError>),
    /// A folder in Hugging Face's form that cannot be used. The error names the file.
    #[error(transparent)]
    Pretrained(Problem),
    /// A checkpoint that cannot be loaded or saved. The error names the file and the parameter.
    #[error(transparent)]
    Checkpoint(Box<CheckpointError>),
    /// A store of objects that cannot be used. The error names the object.
    #[error(transparent)]
    Store(Box<StoreError>),
    /// The operating system refused something. The error says what, for which file.
    #[error("cannot {what} {}: {source}", path.display())]
    Io {
        /// What was being done, such as "read".
        what: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A failure of the program that uses this crate, such as in a data source of its own.
    #[error(transparent)]
    Other(Box<dyn std::error::Error + Send + Sync>),
    /// The pipeline has stopped, so it takes no calls.
    #[error(
        "the pipeline has stopped{}",
        cause.as_ref().map_or(String::new(), |cause| format!(" after a failure: {cause}"))
    )]
    Stopped {
        /// The message of the failure after which it stopped; none where a rank knows only that it has.
        cause: Option<String>,
    },
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Each part's error becomes an [`Error`], in a box: the result of every action is as large as the largest
/// error.
macro_rules! parts {
    ($($kind:ident($part:ty)),* $(,)?) => {$(
        impl From<$part> for Error {
            fn from(error: $part) -> Self {
                Self::$kind(Box::new(error))
            }
        }
    )*};
}

parts! {
    Schedule(ScheduleError),
    Launch(LaunchError),
    Call(CallError),
    Fabric(FabricError),
    Restart(RestartError),
    Run(RunError),
    Data(DataError),
    Checkpoint(CheckpointError),
    Store(StoreError),
}

/// Errors with a variant for failures that are told in words only.
macro_rules! in_words {
    ($($part:ident),* $(,)?) => {$(
        impl $part {
            /// A failure with this message.
            pub fn new(text: impl Into<String>) -> Self {
                Self::Problem(Problem::new(text))
            }

            /// The same, with the error that it comes from. The message includes that error's message.
            pub fn because(
                text: impl Into<String>,
                source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
            ) -> Self {
                Self::Problem(Problem::because(text, source))
            }
        }
    )*};
}

in_words!(CallError, CheckpointError, DataError, LaunchError, RestartError, RunError);

impl From<pipewright_schedule::Error> for Error {
    fn from(error: pipewright_schedule::Error) -> Self {
        use pipewright_schedule::Error as Pure;
        match error {
            Pure::Schedule(error) => Self::Schedule(error),
            Pure::Plan(error) => Self::Plan(error),
            Pure::Mesh(error) => Self::Mesh(error),
        }
    }
}

impl From<Error> for pipewright_stages::Error {
    /// For a stage, or its builder, that calls this crate. The error of a stage is returned as it was. Any
    /// other error becomes the [source](std::error::Error::source).
    fn from(error: Error) -> Self {
        match error {
            Error::Stage(error) => error,
            error => Self::other(error),
        }
    }
}

impl Error {
    /// The same failure, with the action in which it happened. If the action is already known, it stays.
    #[must_use]
    pub(crate) fn at_action(self, at: RankName, index: usize, action: &impl ToString) -> Self {
        match self {
            Self::Action { .. } => self,
            kind => Self::Action { at, index, action: action.to_string(), kind: Box::new(kind) },
        }
    }

    /// Whether a rank that failed with it may succeed if it is built again: the failure is its own.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            Self::Action { kind, .. } => kind.may_pass(),
            Self::Stage(_) | Self::Panicked(_) | Self::Gradient(_) | Self::Data(_) | Self::Io { .. } => true,
            Self::Launch(error) => matches!(**error, LaunchError::Unbuildable { .. }),
            _ => false,
        }
    }

    /// Whether it only follows from another failure.
    pub(crate) fn is_echo(&self) -> bool {
        match self {
            Self::PeerGone(_) | Self::Stopped { .. } | Self::Process { .. } | Self::ProcessGone { .. } => {
                true
            }
            Self::Action { kind, .. } => kind.is_echo(),
            _ => false,
        }
    }

    /// Whether a file or a folder is missing that should be there.
    pub(crate) fn misses_a_file(&self) -> bool {
        match self {
            Self::Io { source, .. } => source.kind() == std::io::ErrorKind::NotFound,
            Self::Checkpoint(error) => matches!(**error, CheckpointError::NotShared { .. }),
            Self::Run(error) => matches!(**error, RunError::NotShared(_)),
            _ => false,
        }
    }

    /// The process that was lost, if that is the failure.
    pub(crate) fn lost_process(&self) -> Option<u32> {
        self.lost().map(|(process, _)| process)
    }

    /// The same, and how it was lost.
    pub(crate) fn lost(&self) -> Option<(u32, ProcessLoss)> {
        match self {
            Self::ProcessGone { process, loss } => Some((*process, *loss)),
            Self::Action { kind, .. } => kind.lost(),
            _ => None,
        }
    }

    /// Whether a process was asked to end while a run waited for all its processes.
    pub(crate) fn is_end_of_wait(&self) -> bool {
        matches!(self, Self::Restart(error) if matches!(**error, RestartError::WaitEnded { .. }))
    }

    /// Whether the call ended while ranks were still at work in it.
    pub(crate) fn is_left_early(&self) -> bool {
        matches!(self, Self::Call(error)
            if matches!(**error, CallError::Stalled { .. } | CallError::Interrupted { .. }))
    }

    /// Whether a device had too little memory.
    pub fn is_out_of_memory(&self) -> bool {
        match self {
            Self::Action { kind, .. } => kind.is_out_of_memory(),
            Self::Stage(error) => matches!(error.kind, ErrorKind::OutOfMemory(_)),
            Self::Launch(error) => {
                let LaunchError::Unbuildable { source, .. } = error.as_ref() else {
                    return false;
                };
                matches!(source.kind, ErrorKind::OutOfMemory(_))
            }
            _ => false,
        }
    }

    /// Whether it refuses arguments, a config, a schedule or a plan before any work began.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Fabric(error) => return !matches!(**error, FabricError::Failed(_)),
            Self::Store(error) => return !matches!(**error, StoreError::NotCopied { .. }),
            _ => {}
        }
        matches!(
            self,
            Self::Schedule(_)
                | Self::Plan(_)
                | Self::Pretrained(_)
                | Self::Launch(_)
                | Self::Mesh(_)
                | Self::Run(_)
        )
    }

    /// An error of the program that uses this crate: any error, or a text.
    pub fn other(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Other(error.into())
    }

    /// Makes an error from an I/O failure: it names what was being done to which file.
    pub fn io(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { what, path, source }
    }
}

/// A job's result; a panic becomes an error.
pub(crate) fn caught<T>(job: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(job))
        .unwrap_or_else(|panic| Err(Error::Panicked(panic_message(panic.as_ref()))))
}

/// The message of a panic.
pub fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "without a message".to_owned())
}
