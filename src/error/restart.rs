//! Ranks that are built again after a failure, and cannot go on.

use super::Error;
use crate::id::{StageId, WorldRank};

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
    /// A stage is not what it was.
    #[error(
        "stage {stage} was built again after a failure, and its parameter `{parameter}` is not what it was: \
         its builder must build the same each time"
    )]
    BuiltOtherwise {
        /// The stage.
        stage: StageId,
        /// The parameter.
        parameter: String,
    },
    /// A repeated step is not what it was.
    #[error(
        "rank {rank} was built again and repeated call {call}, but does not send to rank {peer} and receive \
         from it what it did before: a stage may depend only on its parameters, its input, the step and the \
         micro-batch; with a stage that does not, set `train.restarts` to 0"
    )]
    RepeatDiffers {
        /// The rank.
        rank: WorldRank,
        /// The peer.
        peer: WorldRank,
        /// The call's number.
        call: u64,
    },
}
