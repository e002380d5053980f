//! What one rank does.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::id::{MicroBatch, StageId, WorldRank};

/// What a rank does, and for how long.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RankState {
    /// The rank.
    pub rank: WorldRank,
    /// What it does.
    pub doing: Doing,
    /// Whom it waits for in it.
    pub waits: Waits,
    /// The seconds for which nothing of that has changed.
    pub seconds: f64,
}

/// What a rank does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Doing {
    /// It has nothing to do.
    Nothing,
    /// Its part of a call, outside of actions, such as writing its weights into a checkpoint.
    Call,
    /// An action of its list.
    Action {
        /// The action's place in the list, from 0.
        index: usize,
        /// The action in text form, such as `2F5`.
        action: String,
        /// Its stage.
        stage: StageId,
        /// The layer that it is in, or the first and the last layer of the stage, if they have names.
        layers: Option<String>,
    },
}

/// Whom a rank waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Waits {
    /// For nobody: it works.
    Not,
    /// For its data source.
    Data {
        /// The step.
        step: u64,
        /// The micro-batch.
        micro_batch: MicroBatch,
    },
    /// For all other ranks.
    All,
    /// For one other rank.
    Rank(WorldRank, Awaited),
}

/// What a rank wants of the rank that it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Awaited {
    /// The activation of a micro-batch.
    Activation(MicroBatch),
    /// The gradient of a micro-batch.
    Gradient(MicroBatch),
    /// That it takes what it is sent.
    Room,
    /// Its part of a sum over replicas, or another block.
    Block,
    /// Its tensors: it is another shard of the same layers.
    Shard,
}

impl RankState {
    /// Whether it holds the others up if it stays as it is: it does something, and waits for no rank.
    pub(super) fn is_busy(&self) -> bool {
        self.doing != Doing::Nothing && matches!(self.waits, Waits::Not | Waits::Data { .. })
    }
}

/// Where it is, such as `3B7 (stage 3, layer h.5.mlp)`. Nothing outside of actions.
impl fmt::Display for Doing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Action { action, stage, layers, .. } = self else {
            return Ok(());
        };
        match layers {
            Some(layers) => write!(f, "{action} (stage {stage}, {layers})"),
            None => write!(f, "{action} (stage {stage})"),
        }
    }
}

/// Whom, such as `rank 2's gradient of micro-batch 7`.
impl fmt::Display for Waits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Not => write!(f, "nobody"),
            Self::Data { step, micro_batch } => write!(f, "micro-batch {micro_batch} of step {step}"),
            Self::All => write!(f, "all other ranks"),
            Self::Rank(rank, awaited) => match awaited {
                Awaited::Activation(of) => write!(f, "rank {rank}'s activation of micro-batch {of}"),
                Awaited::Gradient(of) => write!(f, "rank {rank}'s gradient of micro-batch {of}"),
                Awaited::Room => write!(f, "rank {rank} to take what it is sent"),
                Awaited::Block => write!(f, "a block of rank {rank}"),
                Awaited::Shard => write!(f, "rank {rank}, another shard of its layers"),
            },
        }
    }
}
