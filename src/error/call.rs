//! Calls of a running pipeline that fail.

use std::fmt;
use std::time::Duration;

use crate::id::WorldRank;
use crate::situation::{Root, Situation};
use pipewright_schedule::error::Problem;

/// A call of a running pipeline that fails.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// Nothing moves any more. The pipeline has stopped, but a thread that hangs is not ended.
    #[error(
        "a stall of {} s: {}. If it only needs more time, raise `pipeline.stall_limit` in the config, or \
         `PipelineBuilder::stall_limit` in Rust",
        limit.as_secs_f64(), situation.explain(roots)
    )]
    Stalled {
        /// For how long nothing may move.
        limit: Duration,
        /// Who holds the others up. Empty if all ranks wait for each other.
        roots: Vec<Root>,
        /// What all ranks did, as far as their processes answered.
        situation: Box<Situation>,
    },
    /// The run was asked to end at once, in the middle of a step. The pipeline has stopped.
    #[error(
        "{why}{}{}; the run ends at once, and its steps since the last checkpoint are lost",
        list(ranks),
        awaited(processes)
    )]
    Interrupted {
        /// Why the call did not wait for the end of the step.
        why: EndsNow,
        /// The ranks of this process that wait.
        ranks: Vec<WaitingRank>,
        /// The processes that have not finished a call which this process has finished.
        processes: Vec<u32>,
    },
    /// Any other failure, in words.
    #[error(transparent)]
    Problem(Problem),
}

impl CallError {
    /// A rank cannot answer.
    pub fn no_answer(rank: WorldRank) -> Self {
        Self::new(format!("rank {rank} does not answer: its thread has ended"))
    }

    /// An evaluation of nothing. The pipeline continues to run.
    pub(crate) fn no_micro_batches() -> Self {
        Self::new("an evaluation of 0 micro-batches has no loss: ask for 1 or more")
    }
}

/// Why an interrupted run ends in the middle of a step, and not after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndsNow {
    /// A second signal, or `Interrupt::request_now`, asked for it.
    #[error("interrupted a second time")]
    Asked,
    /// A process does not answer, so the step would not end.
    #[error(
        "interrupted, and process {0} does not answer: it is stopped, or its machine or the network has \
         failed"
    )]
    Silent(u32),
    /// The process was told to end (SIGTERM), and for this time its ranks have only waited.
    #[error("told to end, but no rank here has made progress for {} s", .0.as_secs_f64())]
    Still(Duration),
}

/// A rank that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaitingRank {
    /// The rank.
    pub rank: WorldRank,
    /// Its action in text form.
    pub action: String,
    /// The rank that it waits for. `None`: for all other ranks.
    pub on: Option<WorldRank>,
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

fn awaited(processes: &[u32]) -> String {
    let words = |process: &u32| format!("; process {process} is waited for");
    processes.iter().map(words).collect()
}
