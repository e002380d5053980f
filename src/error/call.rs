//! Calls of a running pipeline that cannot be done.

use std::fmt;
use std::time::Duration;

use crate::id::Rank;

/// Calls of a running pipeline that cannot be done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// There is nothing to evaluate. The pipeline goes on.
    #[error("an evaluation of 0 micro-batches has no loss: ask for 1 or more")]
    NoMicroBatches,
    /// A rank does not come to an end of what it does. The pipeline has stopped, and the rank's thread is left alone.
    #[error(
        "rank {rank} has been at action {index} ({action}) for {} s or longer, and waits for no other rank: what it \
         calls there does not return{}. If that is as it should be, allow more time with the config's \
         `pipeline.stall_limit`, or with `PipelineBuilder::stall_limit` in Rust",
        limit.as_secs_f64(), list(others)
    )]
    Stalled {
        /// The rank.
        rank: Rank,
        /// The action's place in the rank's list, from 0.
        index: usize,
        /// The action in text form, such as `2F5`.
        action: String,
        /// The time that an action may take.
        limit: Duration,
        /// The other ranks of this process that wait.
        others: Vec<WaitingRank>,
    },
}

/// A rank that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingRank {
    /// The rank.
    pub rank: Rank,
    /// Its action in text form.
    pub action: String,
    /// The rank that it waits for; all others where it is none in particular.
    pub on: Option<Rank>,
}

impl fmt::Display for WaitingRank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rank, action, on } = self;
        match on {
            Some(on) => write!(f, "rank {rank} ({action}) waits for rank {on}"),
            None => write!(f, "rank {rank} ({action}) waits for the other ranks"),
        }
    }
}

fn list(others: &[WaitingRank]) -> String {
    others.iter().map(|other| format!("; {other}")).collect()
}
