//! Ending a run from outside of its loop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level;

use crate::error::RunError;
use crate::{Error, Result};

/// How long a run that shall end at once may take to say why, and to tell the other processes.
const LAST_WORDS: Duration = Duration::from_secs(3);

/// A wish that a run ends after the step that it is in, or at once. Clones share the wish.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<Wishes>);

#[derive(Debug, Default)]
struct Wishes {
    after_step: AtomicBool,
    /// Whoever asked will not wait long.
    soon: AtomicBool,
    now: AtomicBool,
}

impl Interrupt {
    /// No request yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks the run to save and end after this step.
    pub fn request(&self) {
        self.0.after_step.store(true, Ordering::SeqCst);
    }

    /// Asks the run to end at once, in the middle of a step. It fails then, with
    /// [`CallError::Interrupted`](crate::error::CallError::Interrupted), and nothing is saved.
    pub fn request_now(&self) {
        self.request();
        self.0.now.store(true, Ordering::SeqCst);
    }

    /// Whether the run was asked to end.
    pub fn is_requested(&self) -> bool {
        self.0.after_step.load(Ordering::SeqCst)
    }

    /// Whether somebody has asked for an end at once.
    pub(crate) fn is_urgent(&self) -> bool {
        self.0.now.load(Ordering::SeqCst)
    }

    /// Whether somebody has asked who will not wait for as long as a step takes: the sender of a SIGTERM.
    pub(crate) fn is_soon(&self) -> bool {
        self.0.soon.load(Ordering::SeqCst)
    }

    /// Asks when the process gets SIGINT (Ctrl-C), SIGTERM or SIGHUP, and calls `first` on a thread of its
    /// own. The second of these signals asks for an end at once; a process that is still there 3 seconds
    /// later is ended with status 1.
    ///
    /// # Errors
    /// [`Error::Run`] when the system refuses.
    pub fn on_signals(first: impl FnOnce() + Send + 'static) -> Result<Self> {
        let interrupt = Self::new();
        let watched = interrupt.clone();
        let start = || {
            let mut arrivals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
            let watch = move || watched.watch(arrivals.forever(), first);
            thread::Builder::new().name("signals".to_owned()).spawn(watch)
        };
        start().map_err(|source| Error::from(RunError::Signals { source }))?;
        Ok(interrupt)
    }

    fn watch(&self, mut signals: impl Iterator<Item = i32>, first: impl FnOnce()) {
        let Some(signal) = signals.next() else { return };
        self.0.soon.store(signal == SIGTERM, Ordering::SeqCst);
        self.request();
        first();
        if signals.next().is_some() {
            self.request_now();
            thread::sleep(LAST_WORDS);
            low_level::exit(1);
        }
    }
}
