//! What the schedules on a vee share: two stages a rank, and a limit on the activations that a rank holds.
//!
//! A micro-batch goes down the ranks and back up, forward and then backward. Its activations on the first stage of a rank
//! outlive all of that, those on the second only what lies below the rank; so the higher a rank, the more of its limit goes
//! to the first stage. [`in_flight`] shares it out as the lifespans of a building block do (Qi et al., "Pipeline Parallelism with
//! Controllable Memory", arXiv 2405.15362); the order follows from the costs.

use super::greedy::{First, Goal, Habits, Task, best};
use super::{Made, Sizes};
use crate::Result;
use crate::schedule::{Costs, Placement, StageCost};

/// The best that is found where a rank holds the activations of at most this many micro-batches, counted in whole shares of a
/// rank; where shares differ, in the largest.
pub(super) fn vee(sizes: Sizes, costs: &Costs, activations: u32) -> Result<Made> {
    let Sizes {
        ranks, micro_batches, ..
    } = sizes;
    let placement = Placement::vee(ranks)?;
    let stages = costs.of(&placement)?;
    let ways = in_flight(ranks, 2 * activations);
    let task = Task {
        placement: &placement,
        micro_batches,
        stages: &stages,
        comm: costs.comm(),
        memory: f64::from(activations) * largest_share(&stages),
        in_flight: &[],
    };
    let candidates = habits().flat_map(|habits| {
        ways.iter()
            .map(move |in_flight| (Task { in_flight, ..task }, habits))
    });
    let listed = best(candidates, Goal::Both).expect("the largest share fits any rank's one micro-batch");
    Ok(Made {
        passes: listed.passes,
        placement,
    })
}

/// The most that one micro-batch leaves on a rank of a vee.
fn largest_share(stages: &[StageCost]) -> f64 {
    let most = |stage: &StageCost| stage.saved.max(stage.pending);
    let pairs = stages.iter().zip(stages.iter().rev());
    pairs
        .map(|(one, other)| most(one) + most(other))
        .fold(0.0, f64::max)
}

/// Ways to share out what a rank may hold: how many micro-batches each stage of a vee may have in flight when a rank may
/// have `limit`, at least 2, over both its stages. The most promising first.
///
/// The second stage's part grows from 1 on rank 0 to a half on the last. In some ways it may also use what the first stage
/// leaves, so that the rank's memory is the only limit of both together.
pub(crate) fn in_flight(ranks: u32, limit: u32) -> [Vec<u32>; 4] {
    let way = |nearest: bool, lends: bool| {
        let steps = 2 * u64::from(ranks - 1).max(1);
        let part = |rank| {
            let grown = u64::from(rank) * u64::from(limit - 2) + if nearest { steps / 2 } else { 0 };
            1 + (grown / steps) as u32
        };
        let second = |rank| if lends { limit } else { part(rank) };
        (0..ranks)
            .map(|rank| limit - part(rank))
            .chain((0..ranks).rev().map(second))
            .collect()
    };
    [
        way(false, true),
        way(true, false),
        way(true, true),
        way(false, false),
    ]
}

/// The habits worth trying on a vee, the most promising first.
pub(crate) fn habits() -> impl Iterator<Item = Habits> {
    [(First::Forward, 0.0), (First::Backward, 0.3)]
        .into_iter()
        .flat_map(|(first, patience)| {
            [0.5, 1.0, 0.0].into_iter().flat_map(move |fill| {
                [false, true].into_iter().map(move |even| Habits {
                    first,
                    patience,
                    fill,
                    even,
                })
            })
        })
}
