//! `samples.jsonl`: the texts that a model wrote while it was trained, a line each.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::json_lines::JsonLines;
use crate::Result;

/// A text that a model wrote while it was trained.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Sample {
    /// The steps done.
    pub step: u64,
    /// The beginning of the text, which was given.
    pub prompt: String,
    /// How the model went on.
    pub text: String,
}

/// The file, open for adding lines.
#[derive(Debug)]
pub(super) struct SampleFile(JsonLines);

impl SampleFile {
    /// Opens the file of a run that continues after `step` steps. Lines of later steps are removed.
    pub(super) fn open(path: PathBuf, step: u64) -> Result<Self> {
        let is_later =
            |line: &[u8]| serde_json::from_slice::<Sample>(line).is_ok_and(|line| line.step > step);
        JsonLines::open(path, |line| !is_later(line)).map(Self)
    }

    /// Adds a line.
    pub(super) fn add(&mut self, sample: &Sample) -> Result<()> {
        self.0.add(sample)
    }

    /// Makes the file again if it was removed. Returns its path then.
    pub(super) fn restore(&mut self) -> Result<Option<PathBuf>> {
        self.0.restore()
    }

    /// Waits until the disk has all lines.
    pub(super) fn sync(&self) -> Result<()> {
        self.0.sync()
    }
}
