//! `history.jsonl`: a line each time the run begins, continues or ends, and for each unusual event. A thread
//! notes stalls there: where a disk hangs, it hangs alone.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::thread::{self, JoinHandle};

use crossbeam_channel::{Sender, unbounded};
use serde::{Deserialize, Serialize};

use super::files::{now, restore};
use super::folder::RunDir;
use crate::ended::await_end;
use crate::pipeline::Cut;
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
    /// Whether it is about the cut of the model.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub of_cut: bool,
    /// The cut from then on, if it is about the cut or a beginning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut: Option<Cut>,
    /// The number of the question that it answers: see
    /// [`RunDir::ask_for_cut`](super::folder::RunDir::ask_for_cut).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answers: Option<u64>,
}

impl HistoryEntry {
    /// An event that happens now, after `step` steps.
    pub(in crate::run) fn now(step: u64, event: &str) -> Self {
        let (time, pid, event) = (now(), std::process::id(), event.to_owned());
        Self { time, pid, step, event, of_cut: false, cut: None, answers: None }
    }
}

impl RunDir {
    /// The lines of `history.jsonl` that can be read.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) when the file cannot be read.
    pub fn events(&self) -> Result<Vec<HistoryEntry>> {
        let path = self.history();
        let text = fs::read(&path).map_err(Error::io("read", &path))?;
        let lines = text.split(|byte| *byte == b'\n');
        Ok(lines.filter_map(|line| serde_json::from_slice(line).ok()).collect())
    }
}

impl History {
    pub(in crate::run) fn open(path: PathBuf) -> Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .open(&path)
            .map_err(Error::io("open", &path))?;
        Ok(Self { file, path })
    }

    /// Makes the file again if it was removed. Returns its path then.
    pub(in crate::run) fn restore(&mut self) -> Result<Option<PathBuf>> {
        let restored = restore(&mut self.file, &self.path)?;
        Ok(restored.then(|| self.path.clone()))
    }

    /// Adds an event, which happens now, after `step` steps.
    pub(in crate::run) fn add(&mut self, step: u64, event: &str) -> Result<()> {
        self.add_entry(&HistoryEntry::now(step, event))
    }

    /// Adds an entry.
    pub(in crate::run) fn add_entry(&mut self, entry: &HistoryEntry) -> Result<()> {
        let mut json = serde_json::to_vec(entry).expect("numbers and text always serialise");
        json.push(b'\n');
        self.file.write_all(&json).map_err(Error::io("write", &self.path))
    }
}

/// Notes what it is sent. Dropping it waits until all is noted, but not for a disk that hangs.
#[derive(Debug)]
pub(in crate::run) struct Notes {
    notes: Option<Sender<(u64, String)>>,
    thread: Option<JoinHandle<()>>,
}

impl Notes {
    /// Notes into this file. If that fails, nothing is noted.
    pub(in crate::run) fn start(path: PathBuf) -> Self {
        let (notes, told) = unbounded::<(u64, String)>();
        let note = move || {
            for (step, line) in told {
                // The thread that trains has the file open too. Each adds whole lines.
                let history = History::open(path.clone());
                let _ = history.and_then(|mut history| history.add(step, &line));
            }
        };
        Self { notes: Some(notes), thread: thread::Builder::new().name("notes".to_owned()).spawn(note).ok() }
    }

    /// Notes a line, after `step` steps.
    pub(in crate::run) fn note(&self, step: u64, line: String) {
        if let Some(notes) = &self.notes {
            // Without a thread nobody listens.
            let _ = notes.send((step, line));
        }
    }
}

impl Drop for Notes {
    fn drop(&mut self) {
        self.notes = None;
        if let Some(thread) = self.thread.take() {
            await_end(thread);
        }
    }
}
