//! Schedules that alternate one forward and one backward after a warm-up: 1f1b and interleaved-1f1b.

use super::order::{Order, Sizes};
use crate::Result;
use crate::plan::Costs;
use crate::schedule::{Cell, Pass, Placement};

/// 1F1B with a flush at the end of each step (PipeDream-flush, Narayanan et al., arXiv 2006.09503; the order
/// is PipeDream's, arXiv 1806.03377).
///
/// ```text
/// rank 0 | F0 F1 F2 F3 .. .. .. B0 F4 B1 F5 B2 .. B3 .. B4 .. B5
/// rank 1 | .. F0 F1 F2 .. .. B0 F3 B1 F4 B2 F5 B3 .. B4 .. B5
/// rank 2 | .. .. F0 F1 .. B0 F2 B1 F3 B2 F4 B3 F5 B4 .. B5
/// rank 3 | .. .. .. F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5
/// ```
///
/// It is as fast as GPipe. Rank r of p holds the activations of no more than p - r micro-batches.
pub(super) fn one_f_one_b(sizes: Sizes, _: &Costs) -> Result<Order> {
    let Sizes { ranks, micro_batches, .. } = sizes;
    let rank = |rank: u32| {
        let warm_up = (ranks - rank - 1).min(micro_batches);
        let pass = |pass| move |m| (pass, Cell::new(rank, m));
        let mut passes: Vec<_> = (0..warm_up).map(pass(Pass::Forward)).collect();
        for m in warm_up..micro_batches {
            passes.extend([pass(Pass::Forward)(m), pass(Pass::Backward)(m - warm_up)]);
        }
        passes.extend((micro_batches - warm_up..micro_batches).map(pass(Pass::Backward)));
        passes
    };
    Ok(Order {
        placement: Placement::looped(ranks, 1)?,
        passes: (0..ranks).map(rank).collect(),
        pairs: Vec::new(),
    })
}

/// Interleaved 1F1B: several stages a rank, so that a micro-batch goes round the ranks several times
/// (Narayanan et al., arXiv 2104.04473).
///
/// ```text
/// rank 0 | 0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1 ... 2B2 ... 2B3 0B2 0B3
/// rank 1 | ... 1F0 1F1 3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3 1B2 1B3
/// ```
///
/// Micro-batches go through in groups of as many as there are ranks. Each stage of a rank takes the whole
/// group before the rank's next stage does. Passes in the warm-up have 1/v of the length, so the bubble is
/// 1/v of the bubble of 1F1B. More is held: p + (p-1)/v micro-batches at most.
///
/// If the ranks do not divide the micro-batches, the groups are a little larger, as in PyTorch. In a group of
/// fewer than p, the ranks would wait for its first micro-batch to come round. With larger groups the time is
/// the least that whole backwards allow, for any number of micro-batches. Groups of g micro-batches hold
/// ((v-1) g + 2p - 1)/v at most.
pub(super) fn interleaved_1f1b(sizes: Sizes, _: &Costs) -> Result<Order> {
    let Sizes { ranks, chunks, micro_batches } = sizes;
    let groups = groups(ranks, micro_batches);
    let forwards = in_groups(&groups, (0..chunks).collect());
    let backwards = in_groups(&groups, (0..chunks).rev().collect());
    let rank = |rank: u32| {
        let warm_up = (chunks - 1) * groups[0] + 2 * (ranks - rank - 1);
        let warm_up = forwards.len().min(warm_up as usize);
        let pass = |pass| move |&(chunk, m): &(u32, u32)| (pass, Cell::new(chunk * ranks + rank, m));
        let (forward, backward) = (pass(Pass::Forward), pass(Pass::Backward));
        let steady = forwards[warm_up..].iter().zip(&backwards);
        let (warm, cool) = (&forwards[..warm_up], &backwards[forwards.len() - warm_up..]);
        let mut passes: Vec<_> = warm.iter().map(forward).collect();
        passes.extend(steady.flat_map(|(f, b)| [forward(f), backward(b)]));
        passes.extend(cool.iter().map(backward));
        passes
    };
    Ok(Order {
        placement: Placement::looped(ranks, chunks)?,
        passes: (0..ranks).map(rank).collect(),
        pairs: Vec::new(),
    })
}

/// How many micro-batches each group has. There are as many groups as fit with one micro-batch a rank. The
/// remaining micro-batches go to the first groups, one each.
fn groups(ranks: u32, micro_batches: u32) -> Vec<u32> {
    let count = (micro_batches / ranks).max(1);
    let (size, over) = (micro_batches / count, micro_batches % count);
    (0..count).map(|group| size + u32::from(group < over)).collect()
}

/// The chunk and the micro-batch of each pass: group by group, and chunk by chunk within a group.
fn in_groups(groups: &[u32], chunks: Vec<u32>) -> Vec<(u32, u32)> {
    let mut order = Vec::new();
    let mut first = 0;
    for size in groups {
        for &chunk in &chunks {
            order.extend((first..first + size).map(|m| (chunk, m)));
        }
        first += size;
    }
    order
}
