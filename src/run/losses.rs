//! How often a run has lost a process.

use crate::error::RestartError;
use crate::{Error, Result};

/// The processes that a run has lost since it did a new step. See
/// [`Run::outlives_processes`](super::Run::outlives_processes).
///
/// ```
/// use pipewright::Error;
/// use pipewright::run::Losses;
///
/// let mut losses = Losses::new(1);
/// // After 7 steps a process has gone. Another one comes, and the run goes on from a checkpoint.
/// assert_eq!(losses.after(Error::ProcessGone(1), 7)?, 1);
/// // It has come to step 9 before it lost the next one.
/// assert_eq!(losses.after(Error::ProcessGone(2), 9)?, 1);
/// // The next one goes before there is a new step: the run ends.
/// assert!(losses.after(Error::ProcessGone(2), 9).is_err());
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct Losses {
    most: u32,
    count: u32,
    /// The most steps that were done when a process was lost.
    done: u64,
}

impl Losses {
    /// At most so many in a row without a new step.
    pub fn new(most: u32) -> Self {
        Self {
            most,
            count: 0,
            done: 0,
        }
    }

    /// Counts the loss of a process. `error` is what the run ended with, and `done` are its steps so far.
    /// Returns how many have been lost since the last new step.
    ///
    /// # Errors
    /// When the run cannot go on: the error, if it is not [a loss](Error::is_loss);
    /// [`RestartError::KeepsLosing`] when it was one too many.
    pub fn after(&mut self, error: Error, done: u64) -> Result<u32> {
        if self.most == 0 || !error.is_loss() {
            return Err(error);
        }
        if done > self.done {
            (self.done, self.count) = (done, 0);
        }
        if self.count == self.most {
            return Err(RestartError::KeepsLosing {
                replaced: self.count,
                source: Box::new(error),
            }
            .into());
        }
        self.count += 1;
        Ok(self.count)
    }
}
