//! The zero-bubble schedules on looped placements: zb-h1, zb-2p and interleaved-zb. They differ in a rank's
//! memory, in how many micro-batches a stage may have in flight, and in what they make short.

use super::greedy::{First, Goal, Policy, Rule, Task, best};
use super::order::{Order, Sizes};
use crate::Result;
use crate::plan::{Costs, StageCost};
use crate::schedule::Placement;

/// ZB-H1, also called ZB-1p: the backward-weights fill the idle time of 1F1B, with no more memory than 1F1B
/// (Qi et al., arXiv 2401.10241).
///
/// ```text
/// rank 0 | F0 F1 F2 F3 .. .. .. I0 W0 F4 I1 W1 F5 I2 W2 I3 W3 I4 W4 I5 W5
/// rank 1 | .. F0 F1 F2 .. .. I0 F3 I1 W0 F4 I2 W1 F5 I3 W2 I4 W3 I5 W4 W5
/// rank 2 | .. .. F0 F1 .. I0 F2 I1 F3 I2 W0 F4 I3 W1 F5 I4 W2 I5 W3 W4 W5
/// rank 3 | .. .. .. F0 I0 F1 I1 F2 I2 F3 I3 W0 F4 I4 W1 F5 I5 W2 W3 W4 W5
/// ```
///
/// When F, I and W take the same time, as here, a rank idles for p - 1 of them: a third of its idle time in
/// 1F1B. The order follows from the costs. No rank holds more than the activations of p micro-batches.
pub(super) fn zb_h1(sizes: Sizes, costs: &Costs) -> Result<Order> {
    let ranks = sizes.ranks;
    let as_1f1b = (0..ranks).map(|rank| ranks - rank).collect();
    let in_flight = [as_1f1b, vec![ranks; ranks as usize]];
    within(sizes, costs, ranks, &in_flight, Goal::Makespan)
}

/// ZB-2p, called ZB-H2 where it is made by hand. With twice the memory of 1F1B no rank idles once it has
/// begun (Qi et al., arXiv 2401.10241).
///
/// ```text
/// rank 0 | F0 F1 F2 F3 F4 F5 F6 I0 W0 I1 W1 I2 W2 I3 W3 I4 W4 I5 W5 I6 W6
/// rank 1 | .. F0 F1 F2 F3 F4 I0 F5 I1 F6 I2 W0 I3 W1 I4 W2 I5 W3 I6 W4 W5 W6
/// rank 2 | .. .. F0 F1 F2 I0 F3 I1 F4 I2 F5 I3 F6 I4 W0 I5 W1 I6 W2 W3 W4 W5 W6
/// rank 3 | .. .. .. F0 I0 F1 I1 F2 I2 F3 I3 F4 I4 F5 I5 F6 I6 W0 W1 W2 W3 W4 W5 W6
/// ```
///
/// The ranks begin and end one after the other, so only the span is without a bubble. A step at whose end all
/// ranks meet takes as long as in ZB-H1. The order follows from the costs. No rank holds more than the
/// activations of 2p micro-batches. When F, I and W take the same time, it is 2p - 1, not counting those that
/// wait for their W.
pub(super) fn zb_2p(sizes: Sizes, costs: &Costs) -> Result<Order> {
    let ranks = sizes.ranks;
    let twice_1f1b = (0..ranks).map(|rank| 2 * (ranks - rank)).collect();
    let in_flight = [twice_1f1b, vec![2 * ranks; ranks as usize]];
    within(sizes, costs, 2 * ranks, &in_flight, Goal::Span)
}

/// Interleaved 1F1B with the backward in two halves (PyTorch's `ScheduleInterleavedZeroBubble`, after Qi et
/// al., arXiv 2401.10241, and Narayanan et al., arXiv 2104.04473).
///
/// ```text
/// rank 0 | 0F0 0F1 2F0 2F1 ... 2I0 2W0 0F2 2I1 0I0 0W0 0F3 0I1 2W1 2F2 0W1 2F3 2I2 2W2 2I3 0I2 0I3 0W2 ..
/// rank 1 | ... 1F0 1F1 3F0 3I0 3F1 3I1 1I0 3W0 1F2 1I1 1W0 1F3 3W1 1W1 3F2 3I2 3F3 3I3 1I2 1I3 3W2 1W2 ..
/// ```
///
/// When F, I and W take the same time, as here, and m is a multiple of p, a rank idles for p - 1 of them
/// divided by the number of chunks. The order follows from the costs. No rank holds more than the activations
/// of p micro-batches.
pub(super) fn interleaved_zb(sizes: Sizes, costs: &Costs) -> Result<Order> {
    let Sizes { ranks, chunks, .. } = sizes;
    let stages = ranks * chunks;
    let any = vec![stages; stages as usize];
    let as_1f1b = (0..stages).map(|stage| if stage < stages - ranks { stages } else { stages - stage });
    within(sizes, costs, ranks, &[any, as_1f1b.collect()], Goal::Makespan)
}

/// The best order found within this limit: a rank holds the activations of at most `limit` micro-batches,
/// counted in whole shares of a rank (in the largest, where shares differ). Each entry of
/// `in_flight` is tried: it has the number of micro-batches in flight of each stage.
fn within(sizes: Sizes, costs: &Costs, limit: u32, in_flight: &[Vec<u32>], goal: Goal) -> Result<Order> {
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
    Ok(Order { passes: listed.passes, placement, pairs: Vec::new() })
}

/// The rules to try, the most promising first: what comes first, patience, fill, even. They were selected on
/// random costs: each improves on those before it.
const RULES: [(First, f64, f64, bool); 18] = [
    (First::InTurn, 0.0, 1.0, false),
    (First::InTurn, 0.5, 0.25, false),
    (First::InTurn, 0.0, 0.5, false),
    (First::InTurn, 0.8, 0.0, false),
    (First::InTurn, 0.0, 1.0, true),
    (First::InTurn, 0.9, 0.0, false),
    (First::InTurn, 0.97, 0.0, false),
    (First::InTurn, 0.0, 0.25, false),
    (First::InTurn, 0.1, 0.0, false),
    (First::InTurn, 0.1, 1.0, true),
    (First::InTurn, 0.5, 0.5, true),
    (First::Backward, 0.5, 0.0, false),
    (First::InTurn, 1.0, 0.25, false),
    (First::InTurn, 0.25, 0.25, false),
    (First::Backward, 0.0, 0.5, false),
    (First::InTurn, 0.0, 0.0, false),
    (First::Backward, 0.1, 0.25, false),
    (First::Forward, 0.0, 0.5, false),
];

/// The policies to try, the most promising first.
fn policies(sizes: Sizes, in_flight: &[Vec<u32>]) -> impl Iterator<Item = Policy> {
    let orders: &[bool] = if sizes.chunks == 1 { &[false] } else { &[true, false] };
    RULES.into_iter().flat_map(move |(first, patience, fill, even)| {
        let rule = Rule { first, patience, fill, even };
        orders.iter().flat_map(move |&rounds| {
            in_flight.iter().flat_map(move |in_flight| {
                [true, false].map(|thrifty| Policy {
                    in_flight: in_flight.clone(),
                    rules: vec![rule; sizes.ranks as usize],
                    rounds,
                    thrifty,
                })
            })
        })
    })
}
