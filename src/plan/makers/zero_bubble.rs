//! What the zero-bubble schedules on looped placements share.

use super::greedy::{First, Goal, Habits, Policy, Task, best};
use super::{Made, Sizes};
use crate::Result;
use crate::plan::{Costs, StageCost};
use crate::schedule::Placement;

/// The best order found in which a rank holds the activations of at most `limit` micro-batches, counted in whole shares of a
/// rank; where these differ, in the largest. Each stage is tried with each of the numbers of micro-batches in flight.
pub(super) fn zero_bubble(
    sizes: Sizes,
    costs: &Costs,
    limit: u32,
    in_flight: &[Vec<u32>],
    goal: Goal,
) -> Result<Made> {
    let placement = Placement::looped(sizes.ranks, sizes.chunks)?;
    let stages = costs.of(&placement)?.into_iter().map(StageCost::unrestored);
    let stages: Vec<_> = stages.collect();
    let mut shares = vec![0.0; sizes.ranks as usize];
    for (rank, cost) in placement.iter().zip(&stages) {
        shares[rank.index()] += cost.saved.max(cost.pending);
    }
    let task = Task {
        placement: &placement,
        micro_batches: sizes.micro_batches,
        stages: &stages,
        comm: costs.comm(),
        memory: f64::from(limit) * shares.into_iter().fold(0.0, f64::max),
    };
    let (_, listed) = best(&task, policies(sizes, in_flight), goal).expect("a share fits one micro-batch");
    Ok(Made {
        passes: listed.passes,
        placement,
        pairs: Vec::new(),
    })
}

/// Policies, the most promising first. Chosen from many on random costs: each betters what those before it reach.
fn policies(sizes: Sizes, in_flight: &[Vec<u32>]) -> impl Iterator<Item = Policy> {
    use First::{Backward, Forward, InTurn};
    let habits = [
        (InTurn, 0.0, 1.0, false),
        (InTurn, 0.5, 0.25, false),
        (InTurn, 0.0, 0.5, false),
        (InTurn, 0.8, 0.0, false),
        (InTurn, 0.0, 1.0, true),
        (InTurn, 0.9, 0.0, false),
        (InTurn, 0.97, 0.0, false),
        (InTurn, 0.0, 0.25, false),
        (InTurn, 0.1, 0.0, false),
        (InTurn, 0.1, 1.0, true),
        (InTurn, 0.5, 0.5, true),
        (Backward, 0.5, 0.0, false),
        (InTurn, 1.0, 0.25, false),
        (InTurn, 0.25, 0.25, false),
        (Backward, 0.0, 0.5, false),
        (InTurn, 0.0, 0.0, false),
        (Backward, 0.1, 0.25, false),
        (Forward, 0.0, 0.5, false),
    ];
    let orders: &[bool] = if sizes.chunks == 1 {
        &[false]
    } else {
        &[true, false]
    };
    habits.into_iter().flat_map(move |(first, patience, fill, even)| {
        let habits = Habits {
            first,
            patience,
            fill,
            even,
        };
        orders.iter().flat_map(move |&rounds| {
            in_flight.iter().flat_map(move |in_flight| {
                [true, false].map(|thrifty| Policy {
                    in_flight: in_flight.clone(),
                    habits: vec![habits; sizes.ranks as usize],
                    rounds,
                    thrifty,
                })
            })
        })
    })
}
