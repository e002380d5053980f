//! The errors of the command: configs, costs and arguments. Errors of the engine pass through.

mod command;
mod config;
mod profile;
mod value;

use std::fmt;
use std::path::PathBuf;

pub use command::{Advice, CommandError, OutProblem, PromptProblem};
pub use config::{ConfigError, Origin};
pub use profile::{CostsProblem, ProfileError};
pub use value::ValueProblem;

/// A result of this package.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error: what went wrong, and where.
///
/// `Debug` writes the message too. So a `main` that returns an error shows it to people as it should be read.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An error of the engine.
    #[error(transparent)]
    Engine(#[from] pipewright::Error),
    /// A config, or a value in it, that cannot be used.
    #[error(transparent)]
    Config(Box<ConfigError>),
    /// Measured costs that cannot be used, or ranks whose costs cannot be measured.
    #[error(transparent)]
    Profile(Box<ProfileError>),
    /// Arguments of a command that cannot be used.
    #[error(transparent)]
    Command(Box<CommandError>),
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The errors of this package, in a box.
macro_rules! own {
    ($($kind:ident($part:ty)),* $(,)?) => {$(
        impl From<$part> for Error {
            fn from(error: $part) -> Self {
                Self::$kind(Box::new(error))
            }
        }
    )*};
}

own! {
    Config(ConfigError),
    Profile(ProfileError),
    Command(CommandError),
}

impl From<Error> for pipewright::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Engine(error) => error,
            error => Self::other(error),
        }
    }
}

/// What `?` makes an error of the engine.
macro_rules! of_engine {
    ($($part:ty),* $(,)?) => {$(
        impl From<$part> for Error {
            fn from(error: $part) -> Self {
                Self::Engine(error.into())
            }
        }
    )*};
}

of_engine! {
    pipewright::error::DataError,
    pipewright::error::FabricError,
    pipewright::plan::Error,
    pipewright::error::LaunchError,
    pipewright::error::MeshError,
    pipewright::error::RunError,
    pipewright::error::ScheduleError,
    pipewright::stages::Error,
}

impl Error {
    /// Whether it refuses arguments, a config, a schedule or a plan before any work began.
    pub(crate) fn is_refusal(&self) -> bool {
        match self {
            Self::Engine(error) => error.is_refusal(),
            Self::Config(_) | Self::Profile(_) | Self::Command(_) => true,
        }
    }

    /// Whether a device had too little memory.
    pub(crate) fn is_out_of_memory(&self) -> bool {
        match self {
            Self::Engine(error) => error.is_out_of_memory(),
            Self::Config(error) => error.is_out_of_memory(),
            Self::Profile(_) | Self::Command(_) => false,
        }
    }

    /// Makes an error from an I/O failure: it names what was being done to which file.
    pub(crate) fn io(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let error = pipewright::Error::io(what, path);
        move |source| Self::Engine(error(source))
    }
}
