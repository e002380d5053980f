//! All the memory that ranks need to train, before anything is made.

use crate::error::Result;
use crate::id::Rank;
use crate::plan::{Costs, simulate};
use crate::schedule::{Links, Pass, Schedule};

/// So many activations, and as many gradients, are taken to be between two ranks at once.
const ON_THE_WAY: f64 = 2.0;

/// So many steps of data are in memory: the one that trains, and the one that is read ahead.
const STEPS_OF_DATA: f64 = 2.0;

/// What a stage needs whatever the schedule does. In bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StageMemory {
    /// Its weights.
    pub weights: f64,
    /// Their gradients.
    pub gradients: f64,
    /// The optimizer's tensors.
    pub optimizer: f64,
    /// Copies of weights for matrix products.
    pub packed: f64,
    /// What a pass needs and gives back when it ends.
    pub working: f64,
    /// Its output for one micro-batch. The gradient of it is as large.
    pub output: f64,
}

/// What data need in memory. Bytes of one micro-batch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DataMemory {
    /// What the first stage takes.
    pub input: f64,
    /// What the loss compares the last stage's output with.
    pub target: f64,
}

/// What a rank holds at most while it trains. In bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RankMemory {
    /// Weights.
    pub weights: f64,
    /// Gradients of the weights.
    pub gradients: f64,
    /// The optimizer's tensors.
    pub optimizer: f64,
    /// What forwards keep for backwards, at the schedule's peak.
    pub activations: f64,
    /// Everything else: packed weights, what passes need while they run, what is on its way to other ranks or waits for
    /// its backward, and data that are read ahead.
    pub buffers: f64,
}

impl RankMemory {
    /// All of it.
    pub fn total(&self) -> f64 {
        self.weights + self.gradients + self.optimizer + self.activations + self.buffers
    }
}

/// What each rank holds at most under this schedule, with the activations that `costs` tell of; `stages` has one entry a
/// stage. Stages of a rank need their buffers one after the other.
///
/// # Errors
/// As for [`simulate`].
pub fn memory(
    schedule: &Schedule,
    costs: &Costs,
    stages: &[StageMemory],
    data: DataMemory,
) -> Result<Vec<RankMemory>> {
    let simulation = simulate(schedule, costs, Links::Buffered)?;
    let rank_of: Vec<usize> = schedule.placement().iter().map(Rank::index).collect();
    let mut ranks: Vec<RankMemory> = simulation
        .ranks
        .iter()
        .map(|rank| RankMemory {
            activations: rank.peak_memory,
            ..RankMemory::default()
        })
        .collect();
    let mut working = vec![0.0_f64; ranks.len()];
    for (index, stage) in stages.iter().enumerate() {
        let rank = rank_of[index];
        let held = &mut ranks[rank];
        held.weights += stage.weights;
        held.gradients += stage.gradients;
        held.optimizer += stage.optimizer;
        held.buffers += stage.packed;
        working[rank] = working[rank].max(stage.working);
        if let Some(&next) = rank_of.get(index + 1).filter(|&&next| next != rank) {
            // An activation is in its sender's memory until the receiver keeps it, and so is a gradient.
            held.buffers += ON_THE_WAY * stage.output;
            ranks[next].buffers += ON_THE_WAY * stage.output;
        }
    }
    for (held, working) in ranks.iter_mut().zip(working) {
        held.buffers += working;
    }
    let ahead = STEPS_OF_DATA * f64::from(schedule.micro_batches());
    if let (Some(&first), Some(&last), Some(end)) = (rank_of.first(), rank_of.last(), stages.last()) {
        ranks[first].buffers += ahead * data.input;
        ranks[last].buffers += ahead * data.target + before_backward(schedule) * end.output;
    }
    Ok(ranks)
}

/// The most micro-batches that are between forward and backward at the last stage: of each, the gradient of the loss waits.
fn before_backward(schedule: &Schedule) -> f64 {
    let last = schedule.last_stage();
    let ranks = (0..schedule.ranks()).map(Rank);
    let passes = ranks.flat_map(|rank| schedule.passes(rank));
    let (mut now, mut most) = (0_u32, 0);
    for (pass, _) in passes.filter(|(_, cell)| cell.stage == last) {
        match pass {
            Pass::Forward => now += 1,
            Pass::Backward | Pass::BackwardInput => now -= 1,
            Pass::BackwardWeight => {}
        }
        most = most.max(now);
    }
    f64::from(most)
}
