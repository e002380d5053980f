//! `history.jsonl`: a line each time the run begins, continues or ends, and for each unusual event.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::files::{now, restore};
use crate::{Error, Result};

/// The file, open for adding lines.
#[derive(Debug)]
pub(super) struct History {
    file: File,
    path: PathBuf,
}

/// A line of `history.jsonl`: something that happened to a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HistoryEntry {
    /// When, in UTC, as `2026-11-26T12:00:00Z`.
    pub time: String,
    /// The process.
    pub pid: u32,
    /// The steps done.
    pub step: u64,
    /// What happened.
    pub event: String,
}

impl History {
    pub(super) fn open(path: PathBuf) -> Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .open(&path)
            .map_err(Error::io("open", &path))?;
        Ok(Self { file, path })
    }

    /// Makes the file again if it was removed. Returns its path then.
    pub(super) fn restore(&mut self) -> Result<Option<PathBuf>> {
        let restored = restore(&mut self.file, &self.path)?;
        Ok(restored.then(|| self.path.clone()))
    }

    /// Adds an event, which happens now, after `step` steps.
    pub(super) fn add(&mut self, step: u64, event: &str) -> Result<()> {
        let entry = HistoryEntry { time: now(), pid: std::process::id(), step, event: event.to_owned() };
        let mut json = serde_json::to_vec(&entry).expect("numbers and text always serialise");
        json.push(b'\n');
        self.file.write_all(&json).map_err(Error::io("write", &self.path))
    }
}
