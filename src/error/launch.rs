//! Parts of a pipeline that do not fit together. Nothing was started.

use std::fmt;

use pipewright_stages::{Device, Shape, Shard};

use super::{Error, of_replica};
use crate::id::{Rank, StageId};

/// Parts of a pipeline that do not fit together. Nothing was started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// A part that every pipeline needs was not given to the builder.
    #[error("the pipeline has no {part}: call `.{part}(...)` before `.launch()`")]
    Missing {
        /// The builder's method for it.
        part: &'static str,
    },
    /// A rank needs at least one thread.
    #[error("0 threads a rank cannot train: give `threads_per_rank` 1 or more")]
    NoThreads,
    /// The system cannot start a rank's threads.
    #[error("rank {rank}: {source}; lower `threads_per_rank`")]
    Threads {
        /// The rank.
        rank: Rank,
        /// The system's error.
        source: pipewright_stages::Error,
    },
    /// The system cannot start the threads that the ranks of a process run on.
    #[error(
        "cannot start the threads of {ranks} ranks: {source}; start more processes, with fewer ranks each, \
         or raise the limits of threads and of open files (`ulimit -u`, `ulimit -n`)"
    )]
    RankThreads {
        /// How many ranks the process has.
        ranks: usize,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The schedule has stages in several directions, as DualPipe has.
    #[error(
        "schedule {schedule} goes in {directions} directions (placement {placement}); the engine trains \
         schedules of one direction: use dualpipe-v, which is similar"
    )]
    SeveralDirections {
        /// The schedule's name.
        schedule: String,
        /// In how many directions it goes.
        directions: u32,
        /// Its placement.
        placement: String,
    },
    /// There are no replicas, or more than gradient groups.
    #[error(
        "{replicas} replicas cannot share {groups} gradient groups, because a replica has whole groups: call \
         `.replicas(...)` with 1 to {groups}, or `.gradient_groups(...)` with more"
    )]
    Replicas {
        /// The number of replicas.
        replicas: u32,
        /// The number of gradient groups.
        groups: u32,
    },
    /// There are not as many schedules as replicas.
    #[error(
        "there are {given} schedules for {replicas} replicas: give `.replica_schedules(...)` one for each, \
         and leave out `.replicas(...)`"
    )]
    ReplicaSchedules {
        /// The schedules.
        given: usize,
        /// The replicas.
        replicas: u32,
    },
    /// A replica's schedule does not fit its share of the micro-batches.
    #[error(
        "the schedule of replica {replica} has {given} micro-batches, and its share of a batch of {batch} is \
         {share}: `Groups::share` says what each replica has"
    )]
    ReplicaSchedule {
        /// The replica.
        replica: u32,
        /// The micro-batches of its schedule.
        given: u32,
        /// The micro-batches of all replicas.
        batch: u32,
        /// The micro-batches of its share.
        share: u32,
    },
    /// The schedules of two replicas place the stages differently.
    #[error(
        "the schedule of replica {replica} places the stages on ranks {given}, that of replica 0 on {first}: \
         give all replicas one placement"
    )]
    ReplicaPlacement {
        /// The replica.
        replica: u32,
        /// Its placement.
        given: String,
        /// The placement of replica 0.
        first: String,
    },
    /// Two replicas hold different parameters.
    #[error(
        "`{name}` of stage {stage} is not the same in replica 0 and in replica {replica}: {what}; the \
         builder of the stage must make the same stage in each call"
    )]
    ReplicasDiffer {
        /// The parameter of replica 0.
        name: String,
        /// Its stage.
        stage: StageId,
        /// The other replica.
        replica: u32,
        /// The difference.
        what: ReplicaDifference,
    },
    /// The optimizer cannot be sharded.
    #[error("{optimizer} cannot be sharded: {why}; leave out `.sharded(true)` (`optimizer.sharded`)")]
    NotSharded {
        /// The optimizer.
        optimizer: String,
        /// The reason.
        why: WholeUpdates,
    },
    /// The optimizer cannot update the numbers that a rank of a server owns.
    #[error(
        "a server cannot use {optimizer}: it updates whole parameters only (`Optimizer::updates_parts`), and \
         each rank of a server owns parts of them; take `SyncMode::Reduce` (`pipeline.sync = \"reduce\"`)"
    )]
    NotServed {
        /// The optimizer.
        optimizer: String,
    },
    /// Weights may not be stale here.
    #[error("weights may not be stale {why}: set `max_staleness` (`pipeline.max_staleness`) to 0")]
    NotStale {
        /// The reason.
        why: Synchronous,
    },
    /// The number of stages differs from the schedule's.
    #[error(
        "the schedule has {expected} stages, the pipeline was given {given}: split the model into as many \
         as the schedule has"
    )]
    Stages {
        /// The schedule's stages.
        expected: u32,
        /// The stages that were given.
        given: usize,
    },
    /// The ends that were given are not the ends of all ranks, in rank order.
    #[error("the pipeline needs the ends of its {ranks} ranks, in rank order, and was given others")]
    Ends {
        /// The number of ranks.
        ranks: u32,
    },
    /// An optimizer or a loss cannot run on the rank's device.
    #[error(
        "{}rank {rank}: {what} does not run on {device}, only on cpu: take another, or put the rank on the \
         cpu",
        of_replica(*replica)
    )]
    NotOnDevice {
        /// The rank's replica, if there are several.
        replica: Option<u32>,
        /// The rank.
        rank: Rank,
        /// What does not run there.
        what: CpuOnly,
        /// Where the rank's stages run.
        device: Device,
    },
    /// A loss cannot take what the rank's stages give it.
    #[error(
        "{}rank {rank}: the loss takes numbers of f32 only: take another, or set dtype to f32",
        of_replica(*replica)
    )]
    LossInF32Only {
        /// The rank's replica, if there are several.
        replica: Option<u32>,
        /// The rank.
        rank: Rank,
    },
    /// A stage cannot be built.
    #[error(
        "stage {stage} ({}rank {rank}) cannot be built{}: {source}",
        of_replica(*replica),
        on(*device)
    )]
    Unbuildable {
        /// The rank's replica, if there are several.
        replica: Option<u32>,
        /// The stage.
        stage: StageId,
        /// Its rank.
        rank: Rank,
        /// Where it should run.
        device: Device,
        /// The reason.
        source: pipewright_stages::Error,
    },
    /// A parameter holds only a part of its tensor.
    #[error(
        "the parameter `{name}` of {place} is {shard}: the engine trains whole parameters only, so leave out \
         `Parameter::sharded`"
    )]
    Sharded {
        /// The name.
        name: String,
        /// The part of the tensor.
        shard: Shard,
        /// Where it is.
        place: ParameterPlace,
    },
    /// Two parameters have one name, and neither is declared to be a tied copy of the other.
    #[error(
        "two parameters have the name `{name}`: the one of {} and the one of {}; give them two names, or \
         declare one a copy of the other (`Parameter::tied`)",
        places[0], places[1]
    )]
    SameName {
        /// The name.
        name: String,
        /// Where the two are.
        places: [ParameterPlace; 2],
    },
    /// A tied copy, but no layer holds the parameter that it copies.
    #[error(
        "the parameter `{name}` of {place} is a tied copy, but no layer holds the parameter that it copies: \
         one of that name that is not tied"
    )]
    NoOriginal {
        /// The name.
        name: String,
        /// Where the copy is.
        place: ParameterPlace,
    },
    /// A tied copy has other dimensions than the parameter that it copies.
    #[error(
        "parameters named `{name}` are tied, but have dimensions {:?} in stage {} and {:?} in stage {}: \
         give them one shape or two names",
        dims[0], stages[0], dims[1], stages[1]
    )]
    TiedShapes {
        /// The name.
        name: String,
        /// The dimensions of both.
        dims: [Vec<usize>; 2],
        /// The stages of both.
        stages: [StageId; 2],
    },
    /// Only one of two tied parameters is frozen.
    #[error(
        "the tied parameter `{name}` is frozen in {frozen} and trained in {trained}: freeze both or none"
    )]
    TiedTraining {
        /// The name.
        name: String,
        /// Where it is frozen.
        frozen: ParameterPlace,
        /// Where it is trained.
        trained: ParameterPlace,
    },
    /// A stage cannot use its input.
    #[error("stage {stage} (rank {rank}) refuses what {giver} gives, {shape}: {source}")]
    RefusedInput {
        /// The stage.
        stage: StageId,
        /// Its rank.
        rank: Rank,
        /// Where its input comes from.
        giver: Giver,
        /// The shape of the input.
        shape: Shape,
        /// The stage's error.
        source: Box<Error>,
    },
    /// The loss cannot use the last stage's output with the data's targets.
    #[error("the loss refuses an output of {output} with targets of {target}: {source}")]
    RefusedOutput {
        /// The shape of the last stage's output.
        output: Shape,
        /// The shape of the targets.
        target: Shape,
        /// The loss's error.
        source: Box<Error>,
    },
}

/// A part of a pipeline that runs on the CPU only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CpuOnly {
    /// The optimizer, as its `Debug` shows it.
    Optimizer(String),
    /// The loss.
    Loss,
}

impl fmt::Display for CpuOnly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Optimizer(optimizer) => write!(f, "the optimizer {optimizer}"),
            Self::Loss => f.write_str("the loss"),
        }
    }
}

/// Where a stage's input comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Giver {
    /// The data source.
    Data,
    /// The previous stage.
    Stage(StageId),
}

impl fmt::Display for Giver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Data => f.write_str("the data"),
            Self::Stage(stage) => write!(f, "stage {stage}"),
        }
    }
}

/// Where a parameter is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParameterPlace {
    /// The layer, if the stage says which of its layers holds the parameter.
    pub layer: Option<String>,
    /// The stage.
    pub stage: StageId,
}

impl fmt::Display for ParameterPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.layer {
            Some(layer) => write!(f, "layer `{layer}` in stage {}", self.stage),
            None => write!(f, "stage {}", self.stage),
        }
    }
}

/// The device of a stage, if it is not the CPU.
fn on(device: Device) -> String {
    match device {
        Device::Cpu => String::new(),
        device => format!(" on {device}"),
    }
}

/// Why an optimizer cannot be sharded over replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WholeUpdates {
    /// It has no state, so there would be nothing to save.
    #[error("it has no state, so there is nothing to save")]
    NoState,
    /// It needs all numbers of a parameter for an update.
    #[error("it updates whole parameters only (`Optimizer::updates_parts`)")]
    WholeParameters,
}

/// Why weights may not be stale.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Synchronous {
    /// A parameter has tied copies.
    #[error("in a model with tied parameters (`{name}`), whose copies must stay equal")]
    Tied {
        /// The parameter.
        name: String,
    },
    /// A rank is on a GPU.
    #[error("on {device}, only on cpu")]
    Gpu {
        /// The device.
        device: Device,
    },
    /// Ranks that fail are built again.
    #[error(
        "where ranks are built again after a failure: a step that was lost would be made with other weights"
    )]
    Restarts,
}

/// How the parameters of two replicas differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplicaDifference {
    /// One has another parameter in that place, or none.
    #[error("the stage there has another parameter in its place, or other dimensions")]
    Parameter,
    /// They start with different weights.
    #[error("it starts with other weights")]
    Weights,
}
