//! What is said of a rank that is built again after a failure.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::id::WorldRank;

/// Whether and how the ranks that fail in a step are built again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Restarts {
    /// How often in one step. 0: a failure ends the training.
    pub(crate) most: u32,
    /// The steps from one snapshot of weights and optimizer state to the next.
    pub(crate) snapshot_every: u32,
}

/// A rank failed in a step and was built again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Restart {
    /// The rank.
    pub rank: WorldRank,
    /// Why it failed.
    pub why: String,
    /// How many steps it repeated, from its last snapshot on: the one in which it failed, and those before.
    pub repeated: u32,
    /// Seconds from the failure until it had repeated these steps.
    pub seconds: f64,
}

/// The pause before the second restart. It doubles with each further one.
const PAUSE: Duration = Duration::from_millis(50);

/// The longest pause.
const LONGEST: Duration = Duration::from_secs(5);

/// How long to wait before one more restart after this number of them: what fails may need a moment.
pub(crate) fn pause_after(restarts: u32) -> Duration {
    let doubled = restarts.checked_sub(1);
    doubled.map_or(Duration::ZERO, |doubled| PAUSE.saturating_mul(1 << doubled.min(16)).min(LONGEST))
}

impl fmt::Display for Restart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rank, why, repeated, seconds } = self;
        let steps = if *repeated == 1 { "step" } else { "steps" };
        write!(f, "{why}; rank {rank} was built again and repeated {repeated} {steps} in {seconds:.2} s")
    }
}
