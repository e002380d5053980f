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

/// A line of the file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) time: String,
    pub(crate) pid: u32,
    /// The steps done.
    pub(crate) step: u64,
    pub(crate) event: String,
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
        let entry = Entry {
            time: now(),
            pid: std::process::id(),
            step,
            event: event.to_owned(),
        };
        let mut json = serde_json::to_vec(&entry).expect("numbers and text always serialise");
        json.push(b'\n');
        self.file.write_all(&json).map_err(Error::io("write", &self.path))
    }
}
