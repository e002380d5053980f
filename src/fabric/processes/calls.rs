//! Checks that all processes make the same calls.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use crate::error::FabricError;

/// For each other process: the calls that only one of the two has made so far.
pub(super) struct Calls {
    process: u32,
    /// By process.
    unmatched: Mutex<Vec<Unmatched>>,
}

#[derive(Clone, Default)]
struct Unmatched {
    ours: VecDeque<String>,
    theirs: VecDeque<String>,
}

impl Calls {
    pub(super) fn new(process: u32, processes: u32) -> Self {
        Self { process, unmatched: Mutex::new(vec![Unmatched::default(); processes as usize]) }
    }

    /// Records this process's next call.
    ///
    /// # Errors
    /// [`FabricError::Failed`] when another process has made a different call.
    pub(super) fn ours(&self, call: &str) -> Result<(), FabricError> {
        let mut unmatched = self.unmatched.lock().unwrap_or_else(PoisonError::into_inner);
        let mut result = Ok(());
        for (process, unmatched) in (0..).zip(unmatched.iter_mut()) {
            match unmatched.theirs.pop_front() {
                Some(theirs) => result = result.and(self.compare(call, process, &theirs)),
                None if process != self.process => unmatched.ours.push_back(call.to_owned()),
                None => {}
            }
        }
        result
    }

    /// Records the next call of another process.
    ///
    /// # Errors
    /// [`FabricError::Failed`] when this process has made a different call.
    pub(super) fn theirs(&self, process: u32, call: String) -> Result<(), FabricError> {
        let mut unmatched = self.unmatched.lock().unwrap_or_else(PoisonError::into_inner);
        let unmatched = &mut unmatched[process as usize];
        match unmatched.ours.pop_front() {
            Some(ours) => self.compare(&ours, process, &call),
            None => {
                unmatched.theirs.push_back(call);
                Ok(())
            }
        }
    }

    fn compare(&self, ours: &str, other: u32, theirs: &str) -> Result<(), FabricError> {
        if ours == theirs {
            return Ok(());
        }
        Err(FabricError::calls_differ(self.process, ours, other, theirs))
    }
}
