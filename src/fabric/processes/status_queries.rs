//! What processes tell each other beside their frames, at any time: what they do.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// Says what this process does. Any thread may call it, and it never waits for a rank.
type Tell = Box<dyn Fn() -> Vec<u8> + Send + Sync>;

/// What this process tells each other one that asks.
#[derive(Default)]
pub(in crate::fabric) struct Aside {
    tell: OnceLock<Tell>,
    nudges: AtomicU64,
}

impl Aside {
    /// From now on this says what the process does. Only the first one counts.
    pub(super) fn tell_by(&self, tell: Tell) {
        let _ = self.tell.set(tell);
    }

    /// What the process does, as bytes. None if it has not begun.
    pub(in crate::fabric) fn told(&self) -> Vec<u8> {
        self.tell.get().map_or_else(Vec::new, |tell| tell())
    }

    /// Another process suspects a stall.
    pub(in crate::fabric) fn nudge(&self) {
        self.nudges.fetch_add(1, Ordering::Relaxed);
    }

    /// How often others have suspected a stall.
    pub(super) fn nudges(&self) -> u64 {
        self.nudges.load(Ordering::Relaxed)
    }
}

/// The last answer of another process.
#[derive(Default)]
pub(in crate::fabric) struct Answer {
    count: AtomicU64,
    said: Mutex<Vec<u8>>,
}

impl Answer {
    /// The longest answer, in bytes: of many more ranks than a process can have.
    pub(in crate::fabric) const MOST: usize = 1 << 20;

    /// It has answered.
    pub(in crate::fabric) fn put(&self, said: Vec<u8>) {
        *self.lock() = said;
        self.count.fetch_add(1, Ordering::Release);
    }

    /// How many questions it has answered.
    pub(in crate::fabric) fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    /// What it said last.
    pub(in crate::fabric) fn said(&self) -> Vec<u8> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<u8>> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
