//! The schedules on a vee: zb-v, v-half and v-min. They have two stages a rank and differ in how many
//! activations a rank may hold.
//!
//! A micro-batch goes down the ranks and back up, first forward and then backward. A rank's first stage holds
//! its activations for all of that time. Its second stage holds them only while the ranks below work. So
//! ranks higher up give more of their limit to the first stage. [`in_flight`] follows the lifespans of a
//! building block in Qi et al., "Pipeline Parallelism with Controllable Memory" (arXiv 2405.15362). The order
//! follows from the costs.

use super::greedy::{First, Goal, Rule, Task, best, policies};
use super::order::{Order, Sizes};
use crate::Result;
use crate::plan::{Costs, StageCost};
use crate::schedule::Placement;

/// ZB-V: no bubble in the memory of 1F1B (Qi et al., arXiv 2401.10241, section 6).
///
/// ```text
/// rank 0 | 0F0 0F1 0F2 0F3 0F4 0F5 0F6 7F0 7I0 7F1 7I1 7F2 7I2 7F3 7I3 0I0 0F7 7F4 7I4 0I1 7W0 7F5 7I5 ..
/// rank 1 | ... 1F0 1F1 1F2 1F3 1F4 6F0 1F5 6F1 6I0 6F2 6I1 6F3 6I2 1I0 1F6 6F4 6I3 1I1 1F7 6F5 6I4 1I2 ..
/// rank 2 | ... ... 2F0 2F1 2F2 5F0 2F3 5F1 2F4 5F2 5I0 5F3 5I1 2I0 2F5 5F4 5I2 2I1 2F6 5F5 5I3 2I2 2F7 ..
/// rank 3 | ... ... ... 3F0 4F0 3F1 4F1 3F2 4F2 3F3 4F3 4I0 3I0 3F4 4F4 4I1 3I1 3F5 4F5 4I2 3I2 3F6 4F6 ..
/// ```
///
/// A rank has two stages, out and back. So a micro-batch's first gradient arises where its last forward ran,
/// on rank 0. Every rank holds the activations of at most p micro-batches. When all passes take the same
/// time, a rank is busy from its first pass to its last, and a step idles for (p - 1) / 2 forwards. The
/// search minimizes the longest span, as the paper does.
pub(super) fn zb_v(sizes: Sizes, costs: &Costs) -> Result<Order> {
    let limit = Limit { held: sizes.ranks, done: 0 };
    within(sizes, costs, limit, Goal::Span)
}

/// V-Half: half of 1F1B's memory, and a smaller bubble (Qi et al., arXiv 2405.15362).
///
/// ```text
/// rank 0 | 0F0 0F1 0F2 0F3 0F4 ... ... 7F0 7I0 7F1 7I1 7W0 7W1 7F2 7I2 0I0 0F5 7F3 7I3 0I1 0F6 7F4 7I4 ..
/// rank 1 | ... 1F0 1F1 1F2 1F3 ... 6F0 ... 6F1 6I0 6W0 6I1 6F2 6W1 1I0 1F4 6F3 6I2 1I1 1F5 6F4 6I3 1I2 ..
/// rank 2 | ... ... 2F0 2F1 2F2 5F0 2F3 5F1 ... ... 5I0 5F2 5I1 2I0 5W0 5F3 2F4 2I1 5I2 5F4 2F5 2I2 5I3 ..
/// rank 3 | ... ... ... 3F0 4F0 3F1 4F1 3F2 4F2 ... ... 4I0 3I0 3F3 4F3 4I1 3I1 3F4 4F4 4I2 3I2 3F5 4F5 ..
/// ```
///
/// [ZB-V](zb_v) with half of its limit. A rank holds the activations of at most (p + 2) / 2 micro-batches,
/// rounded down.
pub(super) fn v_half(sizes: Sizes, costs: &Costs) -> Result<Order> {
    let limit = Limit { held: (sizes.ranks + 2) / 2, done: 0 };
    within(sizes, costs, limit, Goal::Makespan)
}

/// V-Min: a third of 1F1B's memory, about the least that keeps ranks busy (Qi et al., arXiv 2405.15362).
///
/// ```text
/// rank 0 | 0F0 0F1 0F2 ... ... ... ... 7F0 7I0 7W0 ... ... ... 7F1 7I1 0I0 0F3 7F2 7I2 0W0 7W1 0I1 0F4 ..
/// rank 1 | ... 1F0 1F1 1F2 ... ... 6F0 ... ... 6I0 6W0 ... 6F1 ... 1I0 6I1 6F2 1F3 1W0 6I2 1I1 6W1 6F3 ..
/// rank 2 | ... ... 2F0 2F1 2F2 5F0 ... ... ... ... 5I0 5F1 5W0 2I0 2W0 5F2 5I1 5W1 2F3 2I1 5I2 5F3 2W1 ..
/// rank 3 | ... ... ... 3F0 4F0 3F1 4F1 ... ... ... ... 4I0 3I0 3F2 4F2 4W0 3W0 4I1 3I1 3F3 4F3 4I2 3I2 ..
/// ```
///
/// [ZB-V](zb_v) with a third of its limit. A rank holds the activations of at most (p + 4) / 3 micro-batches,
/// rounded down. So little memory leaves no room to even out passes of different times.
pub(super) fn v_min(sizes: Sizes, costs: &Costs) -> Result<Order> {
    // On two ranks a micro-batch returns so soon that one and a half are enough.
    let limit = Limit { held: (sizes.ranks + 4) / 3, done: u32::from(sizes.ranks == 2) };
    within(sizes, costs, limit, Goal::Makespan)
}

/// The limit of a rank of a vee.
#[derive(Clone, Copy)]
struct Limit {
    /// The activations of this many micro-batches, counted in whole shares of a rank. Where shares differ, in
    /// the largest.
    held: u32,
    /// How many of these activations, counted by stage and micro-batch, may be held only once their
    /// backward-input is done. Then they take less memory.
    done: u32,
}

/// The best order found within this limit.
fn within(sizes: Sizes, costs: &Costs, limit: Limit, goal: Goal) -> Result<Order> {
    let Sizes { ranks, micro_batches, .. } = sizes;
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
    let limits = in_flight(ranks, 2 * limit.held);
    let mut policies: Vec<_> = policies(ranks, limits.to_vec()).collect();
    policies.sort_by_key(|policy| promise(policy.rules[0]));
    let (_, listed) = best(&task, policies, goal).expect("a share fits one micro-batch");
    Ok(Order { passes: listed.passes, placement, pairs: Vec::new() })
}

/// The rule that is tried first. On a vee a forward brings the loss nearer, and so the first gradient of its
/// micro-batch.
fn promise(rule: Rule) -> (bool, bool, bool) {
    (rule.first != First::Forward, rule.patience > 0.0, rule.even)
}

/// The most that one micro-batch leaves on a rank of a vee.
fn largest_share(stages: &[StageCost]) -> f64 {
    let most = |stage: &StageCost| stage.saved.max(stage.pending);
    let pairs = stages.iter().zip(stages.iter().rev());
    pairs.map(|(first, second)| most(first) + most(second)).fold(0.0, f64::max)
}

/// How many micro-batches each stage of a vee may have in flight, when a rank may have `limit` over both its
/// stages. Each number is at least 2. There are four ways, the most promising first.
///
/// The second stage's part grows from 1 on rank 0 to a half on the last rank. In two of the ways the second
/// stage may also use what the first leaves. The rank's memory then limits both together.
pub(crate) fn in_flight(ranks: u32, limit: u32) -> [Vec<u32>; 4] {
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
