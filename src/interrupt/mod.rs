//! Ending a run from outside of its loop, and asking what it does.

mod questions;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::Result;
use crate::error::RunError;
use crate::system::{self, Arrival, Signal};

pub(crate) use questions::{Answering, questions};
pub use questions::{before_ranks, explain_on_signal};

/// How long a run may take to end at once: it reports the reason and tells the other processes.
const LAST_WORDS: Duration = Duration::from_secs(3);

/// A request to end a run, after its current step or at once. Clones share the request.
#[derive(Clone, Debug, Default)]
pub struct Interrupt {
    wishes: Arc<Wishes>,
    /// Until then it hears only of a request to end at once.
    patient_until: Option<Instant>,
}

#[derive(Debug, Default)]
struct Wishes {
    after_step: AtomicBool,
    /// The sender will not wait for long.
    soon: AtomicBool,
    /// The first signal was SIGTERM.
    by_sigterm: AtomicBool,
    now: AtomicBool,
}

impl Interrupt {
    /// No request yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks the run to save and end after this step.
    pub fn request(&self) {
        self.wishes.after_step.store(true, Ordering::SeqCst);
    }

    /// Asks the run to end at once, in the middle of a step. The run then fails with
    /// [`CallError::Interrupted`](crate::error::CallError::Interrupted), and nothing is saved.
    pub fn request_now(&self) {
        self.request();
        self.wishes.now.store(true, Ordering::SeqCst);
    }

    /// Whether the run was asked to end.
    pub fn is_requested(&self) -> bool {
        match self.patient_until.is_some_and(|until| Instant::now() < until) {
            true => self.is_urgent(),
            false => self.wishes.after_step.load(Ordering::SeqCst),
        }
    }

    /// The same, for what has to be whole before the run ends: for this time it hears only of a request to
    /// end at once.
    pub(crate) fn patient(&self, time: Duration) -> Self {
        Self { wishes: Arc::clone(&self.wishes), patient_until: Instant::now().checked_add(time) }
    }

    /// Whether the run was asked to end at once.
    pub(crate) fn is_urgent(&self) -> bool {
        self.wishes.now.load(Ordering::SeqCst)
    }

    /// Whether the request came by SIGTERM. Its sender may not wait for as long as a step takes.
    pub(crate) fn is_soon(&self) -> bool {
        self.wishes.soon.load(Ordering::SeqCst)
    }

    /// Whether the process was asked to end by SIGTERM, and by nothing before.
    pub(crate) fn is_by_sigterm(&self) -> bool {
        self.wishes.by_sigterm.load(Ordering::SeqCst)
    }

    /// Makes the request when the process receives SIGINT (Ctrl-C), SIGTERM or SIGHUP, and calls `first` on a
    /// thread of its own. Programs send such signals twice, or two of them: so further ones change nothing,
    /// except a Ctrl-C that is typed at the terminal. That one asks the run to end at once. If the process is
    /// still running 3 seconds later, it is ended with status 1.
    ///
    /// A signal that the process ignores when this is called stays ignored: `nohup` ignores SIGHUP, and a
    /// shell without job control ignores SIGINT for what it starts in the background. (Linux only; on other
    /// systems none stays ignored, and each SIGINT counts as typed if the standard input is a terminal. On
    /// Windows there is only SIGINT.)
    ///
    /// # Errors
    /// [`RunError`] when the system refuses.
    pub fn on_signals(first: impl FnOnce() + Send + 'static) -> Result<Self> {
        let interrupt = Self::new();
        let watched = interrupt.clone();
        let start = || {
            let mut arrivals = system::arrivals()?;
            let watch = move || {
                if watched.watch(&mut arrivals, first) {
                    thread::sleep(LAST_WORDS);
                    system::exit(1);
                }
            };
            thread::Builder::new().name("signals".to_owned()).spawn(watch)
        };
        start().map_err(RunError::no_signals)?;
        Ok(interrupt)
    }

    /// Makes the requests that these signals stand for. Returns `true` after one to end at once.
    fn watch(&self, arrivals: &mut dyn Iterator<Item = Arrival>, first: impl FnOnce()) -> bool {
        let mut first = Some(first);
        for Arrival { signal, is_typed } in arrivals {
            if signal == Signal::Terminate {
                self.wishes.soon.store(true, Ordering::SeqCst);
            }
            if let Some(first) = first.take() {
                self.wishes.by_sigterm.store(signal == Signal::Terminate, Ordering::SeqCst);
                self.request();
                first();
            } else if signal == Signal::Interrupt && is_typed {
                self.request_now();
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::Signal::{HangUp, Interrupt as Int, Terminate};
    use super::*;

    #[test]
    fn only_a_second_signal_that_a_person_has_typed_ends_a_run_at_once() {
        let sent = |signal| Arrival { signal, is_typed: false };
        let typed = Arrival { signal: Int, is_typed: true };
        let signals = [Int, Terminate, HangUp];
        for first in signals.map(sent).into_iter().chain([typed]) {
            for second in signals.map(sent).into_iter().chain([typed]) {
                let (interrupt, mut told) = (Interrupt::new(), 0);
                let all = [first, second, sent(Terminate)];
                let ends = interrupt.watch(&mut all.into_iter(), || told += 1);
                assert!(interrupt.is_requested() && told == 1, "{first:?} {second:?}");
                assert_eq!([ends, interrupt.is_urgent()], [second.is_typed; 2], "{first:?} {second:?}");
            }
        }
    }

    #[test]
    fn whoever_sends_sigterm_at_any_time_does_not_wait_for_long() {
        let sent = |signal| Arrival { signal, is_typed: false };
        for (signals, soon) in [([HangUp, Int], false), ([Int, Terminate], true)] {
            let interrupt = Interrupt::new();
            interrupt.watch(&mut signals.map(sent).into_iter(), || ());
            assert_eq!(interrupt.is_soon(), soon);
        }
    }
}
