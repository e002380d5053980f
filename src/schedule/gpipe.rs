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

use crate::Result;
use crate::schedule::makers::Made;
use crate::schedule::{Cell, Pass, Placement};

pub(super) fn gpipe(ranks: u32, micro_batches: u32) -> Result<Made> {
    let rank = |rank| {
        let all = |pass| (0..micro_batches).map(move |m| (pass, Cell::new(rank, m)));
        all(Pass::Forward).chain(all(Pass::Backward)).collect()
    };
    Ok(Made {
        placement: Placement::looped(ranks, 1)?,
        passes: (0..ranks).map(rank).collect(),
    })
}
