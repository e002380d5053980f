//! The errors of the command: configs, costs and arguments. Errors of the engine pass through.

mod config;
mod value;

use std::fmt;
use std::path::PathBuf;

use pipewright::error::Problem;

pub use config::{ConfigError, Origin};
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
    /// Arguments, files or costs that cannot be used, or another failure before a command began its work.
    #[error(transparent)]
    Refused(Problem),
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<ConfigError> for Error {
    fn from(error: ConfigError) -> Self {
        Self::Config(Box::new(error))
    }
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
    pipewright::error::StoreError,
    pipewright::stages::Error,
}

impl Error {
    /// Arguments, files or costs that cannot be used, with this message.
    pub(crate) fn refused(text: impl Into<String>) -> Self {
        Self::Refused(Problem::new(text))
    }

    /// The same failure, marked as one before the command began its work.
    pub(crate) fn not_begun(error: impl Into<Self>) -> Self {
        let error = error.into();
        Self::Refused(Problem::because(error.to_string(), error))
    }

    /// Whether it refuses arguments, a config, a schedule or a plan before any work began.
    pub(crate) fn is_refusal(&self) -> bool {
        match self {
            Self::Engine(error) => error.is_refusal(),
            Self::Config(_) | Self::Refused(_) => true,
        }
    }

    /// Whether a device had too little memory.
    pub(crate) fn is_out_of_memory(&self) -> bool {
        match self {
            Self::Engine(error) => error.is_out_of_memory(),
            Self::Config(error) => error.is_out_of_memory(),
            Self::Refused(_) => false,
        }
    }

    /// Makes an error from an I/O failure: it names what was being done to which file.
    pub(crate) fn io(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let error = pipewright::Error::io(what, path);
        move |source| Self::Engine(error(source))
    }
}
