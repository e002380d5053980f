//! The stalls of a run: shown at once, noted in the history, and kept for the listeners.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use super::directory::history::Notes;
use super::progress::Screen;
use crate::situation::Stall;

/// What a run does with stalls. They are told on the watcher's thread, while the run's own thread waits.
#[derive(Debug)]
pub(super) struct Stalls {
    process: u32,
    /// Whether stalls are shown.
    shows: bool,
    /// The screen of the process that leads.
    screen: Option<Screen>,
    history: Option<PathBuf>,
    notes: OnceLock<Notes>,
    /// The steps done.
    done: AtomicU64,
    /// For the listeners, which are not for other threads.
    untold: Mutex<Vec<Stall>>,
}

impl Stalls {
    /// `history`: the file, in the process that leads. Other processes show stalls only if they are the first
    /// that can.
    pub(super) fn new(process: u32, shows: bool, screen: Option<Screen>, history: Option<PathBuf>) -> Self {
        Self {
            process,
            shows,
            screen,
            history,
            notes: OnceLock::new(),
            done: AtomicU64::new(0),
            untold: Mutex::default(),
        }
    }

    /// `done` steps are done.
    pub(super) fn set_done(&self, done: u64) {
        self.done.store(done, Ordering::Relaxed);
    }

    /// Shows and notes a stall.
    pub(super) fn tell(&self, stall: &Stall) {
        self.untold().push(stall.clone());
        let line = stall.line();
        self.show(&line);
        if let Some(path) = &self.history {
            let notes = self.notes.get_or_init(|| Notes::start(path.clone()));
            notes.note(self.done.load(Ordering::Relaxed), line);
        }
    }

    /// Shows a line, in any process.
    pub(super) fn show(&self, line: &str) {
        match &self.screen {
            _ if !self.shows => {}
            Some(screen) => screen.complain(line),
            None => eprintln!("process {}: {line}", self.process),
        }
    }

    /// The stalls that the listeners have not heard of.
    pub(super) fn take(&self) -> Vec<Stall> {
        std::mem::take(&mut self.untold())
    }

    fn untold(&self) -> std::sync::MutexGuard<'_, Vec<Stall>> {
        self.untold.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
