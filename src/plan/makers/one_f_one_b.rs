//! 1F1B with a flush at the end of each step (PipeDream-flush, Narayanan et al., arXiv 2006.09503; the order
//! is PipeDream's, arXiv 1806.03377).
//!
//! ```text
//! rank 0 | F0 F1 F2 F3 .. .. .. B0 F4 B1 F5 B2 .. B3 .. B4 .. B5
//! rank 1 | .. F0 F1 F2 .. .. B0 F3 B1 F4 B2 F5 B3 .. B4 .. B5
//! rank 2 | .. .. F0 F1 .. B0 F2 B1 F3 B2 F4 B3 F5 B4 .. B5
//! rank 3 | .. .. .. F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5
//! ```
//!
//! As fast as GPipe, and rank r of p holds the activations of no more than p - r micro-batches.

use super::{Made, Sizes};
use crate::Result;
use crate::plan::Costs;
use crate::schedule::{Cell, Pass, Placement};

pub(super) fn one_f_one_b(sizes: Sizes, _: &Costs) -> Result<Made> {
    let Sizes {
        ranks, micro_batches, ..
    } = sizes;
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
    Ok(Made {
        placement: Placement::looped(ranks, 1)?,
        passes: (0..ranks).map(rank).collect(),
        pairs: Vec::new(),
    })
}
