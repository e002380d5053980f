//! What the thread that makes a pipeline's calls is at.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::situation::Part;

/// What the thread that makes the calls is at. Other threads may read it.
#[derive(Debug, Default)]
pub(super) struct CallerProgress {
    at: Mutex<At>,
    source: Mutex<String>,
}

/// Where it is.
#[derive(Debug, Default)]
pub(super) struct At {
    /// The part of a call, such as `training`. Empty outside of calls.
    pub(super) what: String,
    pub(super) part: Part,
    /// Changes whenever something begins or ends.
    pub(super) count: u64,
}

impl CallerProgress {
    /// Does something as a part of a call.
    pub(super) fn during<T>(&self, what: &str, part: Part, act: impl FnOnce() -> T) -> T {
        self.set(what, part);
        let result = act();
        self.set("", Part::default());
        result
    }

    fn set(&self, what: &str, part: Part) {
        let mut at = self.read();
        at.what.clear();
        at.what.push_str(what);
        (at.part, at.count) = (part, at.count + 1);
    }

    /// Where it is now.
    pub(super) fn read(&self) -> MutexGuard<'_, At> {
        self.at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on, data comes from here.
    pub(super) fn take_data_from(&self, source: String) {
        *self.source() = source;
    }

    /// Where data comes from, in words.
    pub(super) fn source(&self) -> MutexGuard<'_, String> {
        self.source.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
