//! When each pass, transfer and reduction starts and ends.

use serde::{Deserialize, Serialize};

use crate::id::{Rank, StageId};
use crate::schedule::{Cell, Flow, MoveStep, Pass};

/// The times of a step, planned or measured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Timeline {
    /// Each rank's passes, in order.
    pub ranks: Vec<Vec<Timed>>,
    /// The transfers, in the order in which they start.
    pub transfers: Vec<TimedTransfer>,
    /// The reductions, in the order in which they start.
    pub reductions: Vec<TimedReduction>,
    /// The copies of offloaded activations. Copies of one rank are in order. Only planned ones: they are not
    /// measured.
    pub copies: Vec<TimedCopy>,
    /// The waits for other shards inside of passes. Waits of one rank are in order. Only measured ones:
    /// planned passes include them.
    pub shard_waits: Vec<TimedShardWait>,
}

/// A pass with its time and the memory that its rank then holds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Timed {
    /// The pass.
    pub pass: Pass,
    /// Its stage and micro-batch.
    pub cell: Cell,
    /// When it starts. The step starts at 0. In the unit of the costs; in seconds if it was measured.
    pub start: f64,
    /// When it ends.
    pub end: f64,
    /// The memory that the rank holds for later backwards when the pass starts. It differs from that after
    /// the pass before where activations were offloaded or came back.
    pub before: f64,
    /// The memory that the rank holds for later backwards when the pass has ended. In the unit of the costs;
    /// in bytes if it was measured.
    pub held: f64,
    /// The most memory held from the pass's start to its end. It exceeds the memory before and after where a
    /// backward recomputes activations.
    pub most: f64,
}

/// A transfer with its time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimedTransfer {
    /// What travels.
    pub flow: Flow,
    /// The cell of the stage that sends.
    pub cell: Cell,
    /// The rank that sends.
    pub from: Rank,
    /// The rank that receives.
    pub to: Rank,
    /// When it starts.
    pub start: f64,
    /// When it has arrived. If it was measured: when the receiver has taken it.
    pub end: f64,
}

/// The sum of a stage's gradients over its replicas, with its time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimedReduction {
    /// The stage.
    pub stage: StageId,
    /// The rank that the stage is on.
    pub rank: Rank,
    /// When it starts.
    pub start: f64,
    /// When the sum is there.
    pub end: f64,
}

/// A copy of a cell's activations to the host or back, with its time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimedCopy {
    /// The rank that the cell is on.
    pub rank: Rank,
    /// The cell.
    pub cell: Cell,
    /// Its direction: [`MoveStep::Out`] or [`MoveStep::Back`].
    pub step: MoveStep,
    /// When it starts.
    pub start: f64,
    /// When all is copied.
    pub end: f64,
}

/// A wait for what another shard sends in a pass, with its time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimedShardWait {
    /// The rank that waits.
    pub rank: Rank,
    /// The shard for which it waits.
    pub shard: u32,
    /// When it starts.
    pub start: f64,
    /// When what was sent is there.
    pub end: f64,
}

impl TimedTransfer {
    /// The cell of the stage that receives.
    pub fn receiver(&self) -> Option<Cell> {
        let stage = self.flow.after(self.cell.stage)?;
        Some(Cell { stage, ..self.cell })
    }
}
