//! What the schedules on a vee share: two stages a rank, and a limit on the activations that a rank holds.
//!
//! A micro-batch goes down the ranks and back up, forward and then backward. What it leaves on the first stage of a rank
//! outlives all of that; what it leaves on the second only what is done below the rank. So the higher a rank, the more of its
//! limit goes to the first stage: [`shares`] follows the lifespans of a building block in Qi et al., "Pipeline Parallelism with
//! Controllable Memory" (arXiv 2405.15362). The order follows from the costs.

use super::greedy::{First, Goal, Habits, Task, best, policies};
use super::{Made, Sizes};
use crate::Result;
use crate::plan::{Costs, StageCost};
use crate::schedule::Placement;

/// What a rank of a vee may hold.
#[derive(Clone, Copy)]
pub(super) struct Limit {
    /// Activations of so many micro-batches, counted in whole shares of a rank; where these differ, in the largest.
    pub(super) held: u32,
    /// So many stages' activations among them only once their backward-input is done.
    pub(super) done: u32,
}

/// The best order found within this limit.
pub(super) fn vee(sizes: Sizes, costs: &Costs, limit: Limit, goal: Goal) -> Result<Made> {
    let Sizes {
        ranks, micro_batches, ..
    } = sizes;
    let placement = Placement::vee(ranks)?;
    let stages = costs.of(&placement)?.into_iter().map(StageCost::unrestored);
    let stages: Vec<_> = stages.collect();
    let freed = stages.iter().map(|stage| stage.saved - stage.pending);
    let task = Task {
        placement: &placement,
        micro_batches,
        stages: &stages,
        comm: costs.comm(),
        memory: f64::from(limit.held) * largest_share(&stages)
            - f64::from(limit.done) * freed.fold(0.0, f64::max),
    };
    let shares = shares(ranks, 2 * limit.held);
    let mut policies: Vec<_> = policies(ranks, shares.to_vec()).collect();
    policies.sort_by_key(|policy| promise(policy.habits[0]));
    let (_, listed) = best(&task, policies, goal).expect("a share fits one micro-batch");
    Ok(Made {
        passes: listed.passes,
        placement,
        pairs: Vec::new(),
    })
}

/// What comes first among the habits: on a vee a forward brings the loss, and so the first gradient of its micro-batch, nearer.
fn promise(habits: Habits) -> (bool, bool, bool) {
    (habits.first != First::Forward, habits.patience > 0.0, habits.even)
}

/// The most that one micro-batch leaves on a rank of a vee.
fn largest_share(stages: &[StageCost]) -> f64 {
    let most = |stage: &StageCost| stage.saved.max(stage.pending);
    let pairs = stages.iter().zip(stages.iter().rev());
    pairs
        .map(|(first, second)| most(first) + most(second))
        .fold(0.0, f64::max)
}

/// How many micro-batches each stage of a vee may have in flight where a rank may have `limit` over both its stages, at
/// least 2. Four ways, the most promising first.
///
/// The second stage's part grows from 1 on rank 0 to a half on the last. In two of the ways it may use what the first stage
/// leaves as well; what both hold together is then up to the rank's memory.
pub(crate) fn shares(ranks: u32, limit: u32) -> [Vec<u32>; 4] {
    let way = |rounding: u64, lends: bool| {
        let whole = 2 * u64::from(ranks - 1).max(1);
        let part =
            |rank| 1 + ((u64::from(rank) * u64::from(limit - 2) + rounding * whole / 2) / whole) as u32;
        let second = |rank| if lends { limit } else { part(rank) };
        let first = (0..ranks).map(|rank| limit - part(rank));
        first.chain((0..ranks).rev().map(second)).collect()
    };
    [way(0, true), way(1, false), way(1, true), way(0, false)]
}
