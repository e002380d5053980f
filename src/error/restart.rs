//! Ranks that are built again after a failure, and cannot go on.

use super::{Error, Problem};

/// A rank that was built again after a failure cannot go on. The pipeline has stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RestartError {
    /// It fails in a step as often as it is built again.
    #[error("{source}; the rank was built again {restarts} times in this step, and failed each time")]
    KeepsFailing {
        /// How often it was built again.
        restarts: u32,
        /// The last failure.
        source: Box<Error>,
    },
    /// A process was asked to end while the run waited for a process: before it began, or after one was lost.
    #[error("process {process} was asked to end while the run waited for all its processes")]
    WaitEnded {
        /// The process.
        process: u32,
    },
    /// Any other failure, in words.
    #[error(transparent)]
    Problem(Problem),
}

impl RestartError {
    /// A pipeline that cannot join its run again.
    pub(crate) fn cannot_rejoin() -> Self {
        Self::new(
            "this process cannot join its run again: that needs processes that are connected by sockets, \
             with `train.restarts` in the config, or `Membership::replaces` and `PipelineBuilder::restarts` \
             in Rust",
        )
    }
}
