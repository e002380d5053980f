//! How stale the weights of steps were.

use serde::{Deserialize, Serialize};

/// How stale the weights were with which ranks began their steps. A step is counted once for each rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Staleness {
    /// Of how many steps the updates were missing, at most.
    pub largest: u32,
    /// The sum over all steps of all ranks.
    sum: u64,
    /// The steps of all ranks.
    steps: u64,
}

impl Staleness {
    /// Of how many steps the updates were missing on average. 0 if there were no steps.
    pub fn mean(&self) -> f64 {
        self.sum as f64 / self.steps.max(1) as f64
    }

    /// Counts a step.
    pub(super) fn count(&mut self, staleness: u32) {
        *self += Self {
            largest: staleness,
            sum: staleness.into(),
            steps: 1,
        };
    }
}

impl std::ops::AddAssign for Staleness {
    fn add_assign(&mut self, more: Self) {
        self.largest = self.largest.max(more.largest);
        self.sum += more.sum;
        self.steps += more.steps;
    }
}

impl std::fmt::Display for Staleness {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "weights at most {} steps old, {:.1} on average",
            self.largest,
            self.mean()
        )
    }
}
