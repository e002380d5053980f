//! Processes of a run that go, and others that come in their place.

use crate::Error;
use crate::config::Config;

/// How often the run has lost a process, and how often it may.
#[derive(Debug)]
pub(super) struct Losses {
    most: u32,
    /// Those since the run did a step for the first time.
    count: u32,
    /// The steps done when the last one was lost.
    done: u64,
    /// How many seconds another process has to come.
    deadline: u64,
}

impl Losses {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            most: config.train.restarts,
            count: 0,
            done: 0,
            deadline: config.launch.deadline,
        }
    }

    /// Whether the run goes on after this error, in a further try. If so, returns what to tell. `done`: its
    /// steps so far.
    pub(super) fn after(&mut self, error: &Error, done: u64) -> Option<String> {
        if !error.is_loss() {
            return None;
        }
        if done > self.done {
            (self.done, self.count) = (done, 0);
        }
        if self.count == self.most {
            return None;
        }
        self.count += 1;
        let Self {
            most,
            count,
            deadline,
            ..
        } = self;
        Some(format!(
            "warning: {error}; the run goes on when a process with its RANK has come in its place, within \
             {deadline} s (loss {count} of {most} that are allowed without a new step)"
        ))
    }
}
