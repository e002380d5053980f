//! Ending a run from outside of its loop, and asking what it does.

mod questions;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level;

use crate::error::RunError;
use crate::{Error, Result};

pub use questions::explain_on_signal;
pub(crate) use questions::{Answering, before_ranks, questions};

/// How long a run may take to end at once: it reports the reason and tells the other processes.
const LAST_WORDS: Duration = Duration::from_secs(3);

/// A request to end a run, after its current step or at once. Clones share the request.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<Wishes>);

#[derive(Debug, Default)]
struct Wishes {
    after_step: AtomicBool,
    /// The sender will not wait for long.
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

    /// Asks the run to end at once, in the middle of a step. The run then fails with
    /// [`CallError::Interrupted`](crate::error::CallError::Interrupted), and nothing is saved.
    pub fn request_now(&self) {
        self.request();
        self.0.now.store(true, Ordering::SeqCst);
    }

    /// Whether the run was asked to end.
    pub fn is_requested(&self) -> bool {
        self.0.after_step.load(Ordering::SeqCst)
    }

    /// Whether the run was asked to end at once.
    pub(crate) fn is_urgent(&self) -> bool {
        self.0.now.load(Ordering::SeqCst)
    }

    /// Whether the request came by SIGTERM. Its sender may not wait for as long as a step takes.
    pub(crate) fn is_soon(&self) -> bool {
        self.0.soon.load(Ordering::SeqCst)
    }

    /// Makes the request when the process receives SIGINT (Ctrl-C), SIGTERM or SIGHUP, and calls `first` on a
    /// thread of its own. The second of these signals asks the run to end at once. If the process is still
    /// running 3 seconds later, it is ended with status 1.
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
