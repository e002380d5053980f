//! A checkpoint that cannot be loaded or saved.

use std::ops::Range;
use std::path::PathBuf;

use crate::checksum::Checksum;
use pipewright_schedule::error::Problem;

/// A checkpoint that cannot be loaded or saved.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// This process does not see a folder that another process has made.
    #[error(
        "{} is not there, although process 0 has made it: the processes of a run need one file system for \
         its folder",
        folder.display()
    )]
    NotShared {
        /// The folder.
        folder: PathBuf,
    },
    /// A run would continue with other data than before.
    #[error(
        "{} was trained on {saved}, and the data is now {given}: give the same data, or continue with other \
         data with --allow-other-data",
        folder.display()
    )]
    OtherData {
        /// The checkpoint.
        folder: PathBuf,
        /// The data that it was trained on.
        saved: Box<KnownData>,
        /// The data now.
        given: Box<KnownData>,
    },
    /// A run would train on data that it has held back so far.
    #[error(
        "{} was trained on {}..{} of {data}, and training would now be on {}..{}, so also on what was held \
         back for validation: set data.validation and data.validation_path as they were, or continue all the \
         same with --allow-other-data",
        folder.display(), before.start, before.end, now.start, now.end
    )]
    HeldBack {
        /// The checkpoint.
        folder: PathBuf,
        /// The data's name.
        data: String,
        /// The tokens, documents, images or rows that it was trained on.
        before: Range<u64>,
        /// Those that it would be trained on.
        now: Range<u64>,
    },
    /// Any other failure, in words.
    #[error(transparent)]
    Problem(Problem),
}

/// Data, as a message names it.
#[derive(Debug, thiserror::Error)]
#[error("{name} (fingerprint {contents})")]
#[non_exhaustive]
pub struct KnownData {
    /// What it is called.
    pub name: String,
    /// The checksum of its contents.
    pub contents: Checksum,
}
