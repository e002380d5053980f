//! V-Half: half of 1F1B's memory, and less than its bubble (Qi et al., arXiv 2405.15362).
//!
//! ```text
//! rank 0 | 0F0 0F1 0F2 0F3 0F4 ... ... 7F0 7I0 7F1 7I1 7W0 7W1 7F2 7I2 0I0 0F5 7F3 7I3 0I1 0F6 7F4 7I4 0I2 ..
//! rank 1 | ... 1F0 1F1 1F2 1F3 ... 6F0 ... 6F1 6I0 6W0 6I1 6F2 6W1 1I0 1F4 6F3 6I2 1I1 1F5 6F4 6I3 1I2 1F6 ..
//! rank 2 | ... ... 2F0 2F1 2F2 5F0 2F3 5F1 ... ... 5I0 5F2 5I1 2I0 5W0 5F3 2F4 2I1 5I2 5F4 2F5 2I2 5I3 5F5 ..
//! rank 3 | ... ... ... 3F0 4F0 3F1 4F1 3F2 4F2 ... ... 4I0 3I0 3F3 4F3 4I1 3I1 3F4 4F4 4I2 3I2 3F5 4F5 4I3 ..
//! ```
//!
//! [ZB-V](super::zb_v) with half of its limit: a rank holds the activations of at most (p + 2) / 2 micro-batches, rounded down.

use super::greedy::Goal;
use super::vee::{Limit, vee};
use super::{Made, Sizes};
use crate::Result;
use crate::plan::Costs;

pub(super) fn v_half(sizes: Sizes, costs: &Costs) -> Result<Made> {
    let limit = Limit {
        held: (sizes.ranks + 2) / 2,
        done: 0,
    };
    vee(sizes, costs, limit, Goal::Makespan)
}
