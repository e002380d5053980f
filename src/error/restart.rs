//! Ranks that are built again after a failure, and cannot go on.

use std::path::PathBuf;

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
    /// Another process was lost, once more than may be replaced.
    #[error(
        "{source}; this was in step {step}, processes were replaced {replaced} times before, and \
         `train.restarts` allows no more"
    )]
    KeepsLosing {
        /// How often processes were replaced.
        replaced: u32,
        /// The step that could not be ended.
        step: u64,
        /// The last loss.
        source: Box<Error>,
    },
    /// Process 0 was lost.
    #[error(
        "process 0 has stopped without saying why: it was killed, or its machine or the network failed; it \
         is the one that cannot be replaced, {}",
        match checkpoint {
            Some(checkpoint) => format!(
                "so start all processes again, with --resume, which continues from {}",
                checkpoint.display()
            ),
            None => "so start all processes again: there is no checkpoint yet, and the run begins again"
                .to_owned(),
        }
    )]
    FirstLost {
        /// The newest checkpoint.
        checkpoint: Option<PathBuf>,
    },
    /// A process was asked to end while the run waited for a process: before it began, or after one was lost.
    #[error("process {process} was asked to end while the run waited for all its processes")]
    WaitEnded {
        /// The process.
        process: u32,
    },
    /// The run was asked to end while a process was missing.
    #[error(
        "{why}: this step cannot end without the lost process, so it is not saved{}",
        match checkpoint {
            Some(checkpoint) => format!("; --resume continues from {}", checkpoint.display()),
            None => ", and there is no checkpoint yet: the same command begins the run again".to_owned(),
        }
    )]
    NotWaitedFor {
        /// Which process was lost, and which was asked to end.
        why: String,
        /// The newest checkpoint.
        checkpoint: Option<PathBuf>,
    },
    /// A process was replaced, but its weights were lost.
    #[error(
        "a process and the one that kept a snapshot of it were lost together, and the checkpoint from which \
         the run was resumed is no longer there: begin another run; checkpoint.every = N saves one every N \
         steps"
    )]
    NothingLeft,
    /// A step that was repeated after the loss of a process has other numbers than before.
    #[error(
        "step {step} was repeated after the loss of a process, and gave loss {} and gradient norm {}, not {} \
         and {} as before: a stage may depend only on its parameters, its input, the step and the \
         micro-batch; with one that does not, set `train.restarts` to 0",
        now[0], now[1], before[0], before[1]
    )]
    OtherNumbers {
        /// The step.
        step: u64,
        /// Loss and gradient norm before.
        before: [f64; 2],
        /// Loss and gradient norm now.
        now: [f64; 2],
    },
    /// A pipeline was to join its run again.
    #[error(
        "this process cannot join its run again: that needs processes that are connected by sockets, with \
         `train.restarts` in the config, or `Membership::replaces` and `PipelineBuilder::restarts` in Rust"
    )]
    CannotRejoin,
    /// A pipeline was to join its run again, and needs not.
    #[error("no other process of this run was lost, so there is nothing to join again: go on with it")]
    NobodyLost,
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
