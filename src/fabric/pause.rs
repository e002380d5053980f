//! How a thread waits for what wakes nobody, such as a message of MPI.

use std::hint;
use std::thread;
use std::time::{Duration, Instant};

/// How long a thread first looks again and again.
const AWAKE: Duration = Duration::from_micros(20);

/// How long it then leaves its core only to those that want it.
const YIELDS: Duration = Duration::from_micros(200);

/// The part of its wait so far that it sleeps then: so the sleep makes a wait little longer.
const PART: u32 = 32;

/// The longest sleep.
const LONGEST: Duration = Duration::from_millis(1);

/// A wait that began at some time.
#[derive(Debug)]
pub struct Pause {
    since: Instant,
}

impl Pause {
    /// A wait that begins now.
    pub fn begin() -> Self {
        Self::since(Instant::now())
    }

    /// A wait whose thread leaves its core to others from the beginning.
    pub(super) fn yielding() -> Self {
        let now = Instant::now();
        Self::since(now.checked_sub(AWAKE).unwrap_or(now))
    }

    /// A wait that began at this time.
    pub fn since(since: Instant) -> Self {
        Self { since }
    }

    /// How long the wait lasts already.
    pub fn elapsed(&self) -> Duration {
        self.since.elapsed()
    }

    /// Waits a little before the next look. Asleep, it waits by `sleep`.
    pub fn rest(&self, sleep: impl FnOnce(Duration)) {
        match self.elapsed() {
            elapsed if elapsed < AWAKE => hint::spin_loop(),
            elapsed if elapsed < YIELDS => thread::yield_now(),
            elapsed => sleep((elapsed / PART).min(LONGEST)),
        }
    }
}
