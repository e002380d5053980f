//! SIGUSR1: what does this process do?

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use crate::Result;
use crate::error::RunError;
use crate::system;

/// How often SIGUSR1 has come.
static QUESTIONS: AtomicU64 = AtomicU64::new(0);

/// How many watch the ranks of a pipeline. They answer.
static ANSWERING: AtomicUsize = AtomicUsize::new(0);

/// What this process does while it has no ranks, and since when. The last one counts.
static BEFORE: Mutex<Vec<(String, Instant)>> = Mutex::new(Vec::new());

/// From now on, `kill -USR1` makes each pipeline of this process print on standard error what all its ranks
/// do, also the ranks of other processes, as far as these answer: see [`crate::situation`]. While there is no
/// pipeline, the process says what it does instead. The run goes on. Without this, the signal ends the
/// process. Windows has no such signal.
///
/// # Errors
/// [`RunError`] when the system refuses.
pub fn explain_on_signal() -> Result<()> {
    static COUNTS: Mutex<bool> = Mutex::new(false);
    let mut counts = locked(&COUNTS);
    if *counts {
        return Ok(());
    }
    let start = || {
        let arrivals = system::questions()?;
        let count = move || {
            for () in arrivals {
                QUESTIONS.fetch_add(1, Ordering::Relaxed);
                if ANSWERING.load(Ordering::Relaxed) == 0 {
                    eprintln!("{}", without_ranks());
                }
            }
        };
        thread::Builder::new().name("questions".to_owned()).spawn(count)
    };
    start().map_err(RunError::no_signals)?;
    *counts = true;
    Ok(())
}

/// How often SIGUSR1 has come since [`explain_on_signal`].
pub(crate) fn questions() -> u64 {
    QUESTIONS.load(Ordering::Relaxed)
}

/// Does something for which this process needs no ranks, such as `opening the data`.
pub fn before_ranks<T>(what: String, act: impl FnOnce() -> T) -> T {
    /// Also after a panic.
    struct Until;

    impl Drop for Until {
        fn drop(&mut self) {
            locked(&BEFORE).pop();
        }
    }

    locked(&BEFORE).push((what, Instant::now()));
    let _until = Until;
    act()
}

fn without_ranks() -> String {
    match locked(&BEFORE).last() {
        Some((what, since)) => format!(
            "this process has no ranks now: it has been {what} for {:.1} s",
            since.elapsed().as_secs_f64()
        ),
        None => {
            "this process has no ranks now: the pipeline has not been launched, or it has ended".to_owned()
        }
    }
}

/// As long as this lives, questions are answered by somebody who looks at ranks.
pub(crate) struct Answering(());

impl Answering {
    pub(crate) fn begin() -> Self {
        ANSWERING.fetch_add(1, Ordering::Relaxed);
        Self(())
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        ANSWERING.fetch_sub(1, Ordering::Relaxed);
    }
}

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
