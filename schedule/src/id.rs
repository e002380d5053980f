//! The numbers of ranks, stages and micro-batches.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A rank's place in the pipeline, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Rank(pub u32);

/// A rank's number in the whole run: over all replicas, pipeline ranks and tensor shards. See
/// [`Mesh`](crate::mesh::Mesh).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct WorldRank(pub u32);

/// A stage's place in the model, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct StageId(pub u32);

/// A micro-batch's place in its step, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MicroBatch(pub u32);

/// One of the three ways to use several ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Axis {
    /// Replicas of the pipeline: data parallelism.
    Data,
    /// The ranks of a pipeline, each with stages of its own.
    Pipeline,
    /// The shards of a pipeline rank: tensor parallelism.
    Tensor,
}

impl Axis {
    /// All axes. The index on the first one changes slowest with the world rank.
    pub const ALL: [Self; 3] = [Self::Data, Self::Pipeline, Self::Tensor];

    /// The word for several indices on the axis.
    pub(crate) fn plural(self) -> &'static str {
        match self {
            Self::Data => "replicas",
            Self::Pipeline => "pipeline ranks",
            Self::Tensor => "tensor shards",
        }
    }
}

macro_rules! plain_number {
    ($($name:ident),*) => {$(
        impl $name {
            /// The number as an index.
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}

plain_number!(Rank, WorldRank, StageId, MicroBatch);
