//! GPipe: all forwards, then all backwards (Huang et al., arXiv 1811.06965).
//!
//! ```text
//! rank 0 | F0 F1 F2 F3 .. .. .. .. .. .. B0 B1 B2 B3
//! rank 1 | .. F0 F1 F2 F3 .. .. .. .. B0 B1 B2 B3
//! rank 2 | .. .. F0 F1 F2 F3 .. .. B0 B1 B2 B3
//! rank 3 | .. .. .. F0 F1 F2 F3 B0 B1 B2 B3
//! ```
//!
//! Simple, and the most memory: every rank holds the activations of all micro-batches.

use super::{Made, Sizes};
use crate::Result;
use crate::plan::Costs;
use crate::schedule::{Cell, Pass, Placement};

pub(super) fn gpipe(sizes: Sizes, _: &Costs) -> Result<Made> {
    let Sizes {
        ranks, micro_batches, ..
    } = sizes;
    let rank = |rank| {
        let all = |pass| (0..micro_batches).map(move |m| (pass, Cell::new(rank, m)));
        all(Pass::Forward).chain(all(Pass::Backward)).collect()
    };
    Ok(Made {
        placement: Placement::looped(ranks, 1)?,
        passes: (0..ranks).map(rank).collect(),
        pairs: Vec::new(),
    })
}
