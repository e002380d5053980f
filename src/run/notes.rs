//! The thread that notes stalls in a run's history: where a disk hangs, it hangs alone.

use std::path::PathBuf;
use std::thread::{self, JoinHandle};

use crossbeam_channel::{Sender, unbounded};

use super::history::History;
use crate::ended::await_end;

/// Notes what it is sent. Dropping it waits until all is noted, but not for a disk that hangs.
#[derive(Debug)]
pub(super) struct Notes {
    notes: Option<Sender<(u64, String)>>,
    thread: Option<JoinHandle<()>>,
}

impl Notes {
    /// Notes into this file. If that fails, nothing is noted.
    pub(super) fn start(path: PathBuf) -> Self {
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
    pub(super) fn note(&self, step: u64, line: String) {
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
