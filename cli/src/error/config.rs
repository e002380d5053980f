//! A config, or a value that was set in one, that cannot be used.

use std::fmt;
use std::path::PathBuf;

use super::ValueProblem;

/// Where a value was set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A line of a file.
    File {
        /// The file's name.
        name: String,
        /// The line, from 1.
        line: usize,
    },
    /// An environment variable.
    Environment(String),
    /// `--set`.
    Set,
    /// The `config.json` of the folder that `model.path` names.
    Pretrained(PathBuf),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { name, line } => write!(f, "{name}:{line}"),
            Self::Environment(name) => write!(f, "environment variable {name}"),
            Self::Set => write!(f, "--set"),
            Self::Pretrained(path) => write!(f, "{}", path.display()),
        }
    }
}

/// A config, or a value in it, that cannot be used. Nothing was started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A value that does not fit its key, or does not fit other values.
    #[error("{}{key}: {problem}", origin.as_ref().map_or(String::new(), |origin| format!("{origin}: ")))]
    Value {
        /// Where the key was set. `None`: it has its default.
        origin: Option<Origin>,
        /// The section and the key, such as `model.dim`.
        key: String,
        /// What is wrong with the value.
        problem: Box<ValueProblem>,
    },
    /// Another mistake: in a sentence, with its place and what to do.
    #[error("{0}")]
    Other(String),
}

impl ConfigError {
    /// Whether training would need more memory than a device has.
    pub(super) fn is_out_of_memory(&self) -> bool {
        matches!(self, Self::Value { problem, .. }
            if matches!(**problem, ValueProblem::TooMuchMemory(_)))
    }
}
