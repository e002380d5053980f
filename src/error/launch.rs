//! Parts of a pipeline that do not fit together. Nothing was started.

use std::fmt;

use pipewright_stages::{Device, Shape, Shard};

use super::Error;
use crate::id::{Rank, StageId};

/// Parts of a pipeline that do not fit together. Nothing was started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// The builder was not given a part that every pipeline needs.
    #[error("the pipeline has no {part}: call `.{part}(...)` before `.launch()`")]
    Missing {
        /// The builder's method for it.
        part: &'static str,
    },
    /// A rank cannot work without a thread.
    #[error("0 threads a rank cannot train: give `threads_per_rank` 1 or more")]
    NoThreads,
    /// The system does not give a rank its threads.
    #[error("rank {rank}: {source}; lower `threads_per_rank`")]
    Threads {
        /// The rank.
        rank: Rank,
        /// What the system reports.
        source: pipewright_stages::Error,
    },
    /// The schedule has stages in several directions, as DualPipe has.
    #[error(
        "schedule {schedule} goes in {directions} directions (placement {placement}); the engine trains schedules of one \
         direction: dualpipe-v is the schedule of this kind for that"
    )]
    SeveralDirections {
        /// The schedule's name.
        schedule: String,
        /// In how many directions it goes.
        directions: u32,
        /// Its placement.
        placement: String,
    },
    /// The mesh has several replicas of the pipeline, or several shards.
    #[error(
        "the mesh has replicas: {replicas}, shards: {shards}; the engine trains one replica of one shard"
    )]
    SeveralPipelines {
        /// The replicas.
        replicas: u32,
        /// The shards of each rank.
        shards: u32,
    },
    /// There are more or fewer stages than the schedule has.
    #[error(
        "the schedule has {expected} stages, the pipeline was given {given}: split the model into as many as the \
         schedule has"
    )]
    Stages {
        /// The schedule's stages.
        expected: u32,
        /// The stages that were given.
        given: usize,
    },
    /// An optimizer or a loss does not run where the rank's stages do.
    #[error(
        "rank {rank}: {what} does not run on {device}, only on cpu: take another, or put the rank on the cpu"
    )]
    NotOnDevice {
        /// The rank.
        rank: Rank,
        /// The optimizer or the loss, in words.
        what: String,
        /// Where the rank's stages run.
        device: Device,
    },
    /// A stage cannot be made.
    #[error("stage {stage} (rank {rank}) cannot be built{}: {source}", on(*device))]
    Unbuildable {
        /// The stage.
        stage: StageId,
        /// Its rank.
        rank: Rank,
        /// Where it should run.
        device: Device,
        /// Why not.
        source: pipewright_stages::Error,
    },
    /// A parameter is not the whole of its tensor.
    #[error(
        "the parameter `{name}` of {place} is {shard}: the engine trains whole parameters only, so leave out \
         `Parameter::sharded`"
    )]
    Sharded {
        /// The name.
        name: String,
        /// Which part of the tensor it is.
        shard: Shard,
        /// Where it is.
        place: ParameterPlace,
    },
    /// Two parameters have one name, and neither is declared to be a tied copy of the other.
    #[error(
        "two parameters have the name `{name}`: the one of {} and the one of {}; give them two names, or declare one a \
         copy of the other (`Parameter::tied`)",
        places[0], places[1]
    )]
    SameName {
        /// The name.
        name: String,
        /// Where the two are.
        places: [ParameterPlace; 2],
    },
    /// A parameter is declared to be a copy of one that no layer holds.
    #[error(
        "the parameter `{name}` of {place} is a tied copy, but no layer holds the parameter that it copies: one of that \
         name that is not tied"
    )]
    NoOriginal {
        /// The name.
        name: String,
        /// Where the copy is.
        place: ParameterPlace,
    },
    /// A tied copy has other dimensions than what it copies.
    #[error(
        "parameters named `{name}` are tied, but have dimensions {:?} in stage {} and {:?} in stage {}: give them one \
         shape or two names",
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
    /// A stage cannot work on what comes to it.
    #[error("stage {stage} (rank {rank}) refuses what {giver} gives, {shape}: {source}")]
    RefusedInput {
        /// The stage.
        stage: StageId,
        /// Its rank.
        rank: Rank,
        /// What comes before it.
        giver: Giver,
        /// The shape of what it gives.
        shape: Shape,
        /// What the stage says.
        source: Box<Error>,
    },
    /// The loss cannot work on the last stage's output and the data's targets.
    #[error("the loss refuses an output of {output} with targets of {target}: {source}")]
    RefusedOutput {
        /// The shape of the last stage's output.
        output: Shape,
        /// The shape of the targets.
        target: Shape,
        /// What the loss says.
        source: Box<Error>,
    },
}

/// What gives a stage its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Giver {
    /// The data source.
    Data,
    /// The stage before.
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
    /// The layer, where the stage says which of its layers a parameter belongs to.
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

/// Where a stage should run, when that is not the CPU.
fn on(device: Device) -> String {
    match device {
        Device::Cpu => String::new(),
        device => format!(" on {device}"),
    }
}
