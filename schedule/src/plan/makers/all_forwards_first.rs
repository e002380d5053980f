//! Schedules that do all forwards before the first backward: gpipe and looped-bfs.

use super::order::{Order, Sizes};
use crate::Result;
use crate::plan::Costs;
use crate::schedule::{Cell, Pass, Placement};

/// GPipe: all forwards, then all backwards (Huang et al., arXiv 1811.06965).
///
/// ```text
/// rank 0 | F0 F1 F2 F3 .. .. .. .. .. .. B0 B1 B2 B3
/// rank 1 | .. F0 F1 F2 F3 .. .. .. .. B0 B1 B2 B3
/// rank 2 | .. .. F0 F1 F2 F3 .. .. B0 B1 B2 B3
/// rank 3 | .. .. .. F0 F1 F2 F3 B0 B1 B2 B3
/// ```
///
/// It is simple and needs the most memory: every rank holds the activations of all micro-batches.
pub(super) fn gpipe(sizes: Sizes, _: &Costs) -> Result<Order> {
    let Sizes { ranks, micro_batches, .. } = sizes;
    let rank = |rank| {
        let all = |pass| (0..micro_batches).map(move |m| (pass, Cell::new(rank, m)));
        all(Pass::Forward).chain(all(Pass::Backward)).collect()
    };
    Ok(Order {
        placement: Placement::looped(ranks, 1)?,
        passes: (0..ranks).map(rank).collect(),
        pairs: Vec::new(),
    })
}

/// Looped BFS: GPipe with several stages a rank. All micro-batches go through one stage of a rank before its
/// next stage starts (Lamy-Poirier, arXiv 2211.05953).
///
/// ```text
/// rank 0 | 0F0 0F1 0F2 0F3 2F0 2F1 2F2 2F3 ... ... 2B3 2B2 2B1 2B0 0B3 0B2 0B1 0B0
/// rank 1 | ... 1F0 1F1 1F2 1F3 3F0 3F1 3F2 3F3 3B3 3B2 3B1 3B0 1B3 1B2 1B1 1B0
/// ```
///
/// The bubble is the same as in interleaved 1F1B. Every rank holds the activations of all micro-batches. A
/// stage does all its work in two runs, so sharded weights have to be gathered only twice a step.
pub(super) fn looped_bfs(sizes: Sizes, _: &Costs) -> Result<Order> {
    let Sizes { ranks, chunks, micro_batches } = sizes;
    let rank = |rank| {
        let cell = move |chunk| move |m| Cell::new(chunk * ranks + rank, m);
        let forwards = (0..chunks).flat_map(|chunk| (0..micro_batches).map(cell(chunk)));
        let backwards = (0..chunks).rev().flat_map(|chunk| (0..micro_batches).rev().map(cell(chunk)));
        let forwards = forwards.map(|cell| (Pass::Forward, cell));
        forwards.chain(backwards.map(|cell| (Pass::Backward, cell))).collect()
    };
    Ok(Order {
        placement: Placement::looped(ranks, chunks)?,
        passes: (0..ranks).map(rank).collect(),
        pairs: Vec::new(),
    })
}
