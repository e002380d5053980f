//! Data that cannot be used.

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::{Error, Problem};
use crate::id::MicroBatch;

/// Data that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// A source returned an error for a micro-batch.
    #[error("{source}")]
    Source {
        /// The step, from 0.
        step: u64,
        /// The micro-batch.
        micro_batch: MicroBatch,
        /// The source's error. The rank that takes inputs and the one that takes targets share it.
        source: Arc<Error>,
    },
    /// A source panicked while it read a micro-batch.
    #[error("the data source panicked: {message}")]
    Panicked {
        /// The step, from 0.
        step: u64,
        /// The micro-batch.
        micro_batch: MicroBatch,
        /// The panic's message.
        message: String,
    },
    /// An error of your own source.
    #[error(transparent)]
    Other(Box<dyn std::error::Error + Send + Sync>),
    /// Any other failure, in words.
    #[error(transparent)]
    Problem(Problem),
}

impl DataError {
    /// The failure of your own source, from a message or from another error.
    pub fn other(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Other(cause.into())
    }

    /// A file or folder that cannot be opened. For a relative path it says where that begins.
    pub(crate) fn unreadable(path: &Path, source: io::Error) -> Self {
        let place = match std::path::absolute(path) {
            Ok(absolute) if path.is_relative() => format!(
                "; relative paths start at the current directory, so this is `{}`",
                absolute.display()
            ),
            _ => String::new(),
        };
        Self::because(format!("cannot read `{}`: {source}{place}", path.display()), source)
    }
}
