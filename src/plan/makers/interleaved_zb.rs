//! Interleaved 1F1B with the backward in two halves (PyTorch's `ScheduleInterleavedZeroBubble`, after Qi et al., arXiv
//! 2401.10241, and Narayanan et al., arXiv 2104.04473).
//!
//! ```text
//! rank 0 | 0F0 0F1 2F0 2F1 ... 2I0 2W0 0F2 2I1 0I0 0W0 0F3 0I1 2W1 2F2 0W1 2F3 2I2 2W2 2I3 0I2 0I3 0W2 2W3 0W3
//! rank 1 | ... 1F0 1F1 3F0 3I0 3F1 3I1 1I0 3W0 1F2 1I1 1W0 1F3 3W1 1W1 3F2 3I2 3F3 3I3 1I2 1I3 3W2 1W2 3W3 1W3
//! ```
//!
//! When F, I and W take the same time, as here, and m is a multiple of p, a rank idles for p - 1 of them divided by the number
//! of chunks. The order follows from the costs. No rank holds more than the activations of p micro-batches.

use super::greedy::Goal;
use super::zero_bubble::zero_bubble;
use super::{Made, Sizes};
use crate::Result;
use crate::plan::Costs;

pub(super) fn interleaved_zb(sizes: Sizes, costs: &Costs) -> Result<Made> {
    let Sizes { ranks, chunks, .. } = sizes;
    let stages = ranks * chunks;
    let any = vec![stages; stages as usize];
    let as_1f1b = (0..stages).map(|stage| {
        if stage < stages - ranks {
            stages
        } else {
            stages - stage
        }
    });
    zero_bubble(sizes, costs, ranks, &[any, as_1f1b.collect()], Goal::Makespan)
}
