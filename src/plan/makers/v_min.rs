//! V-Min: a third of 1F1B's memory, about the least that keeps ranks busy (Qi et al., arXiv 2405.15362).
//!
//! ```text
//! rank 0 | 0F0 0F1 0F2 ... ... ... ... 7F0 7I0 7W0 ... ... ... 7F1 7I1 0I0 0F3 7F2 7I2 0W0 7W1 0I1 0F4 7F3 ..
//! rank 1 | ... 1F0 1F1 1F2 ... ... 6F0 ... ... 6I0 6W0 ... 6F1 ... 1I0 6I1 6F2 1F3 1W0 6I2 1I1 6W1 6F3 1F4 ..
//! rank 2 | ... ... 2F0 2F1 2F2 5F0 ... ... ... ... 5I0 5F1 5W0 2I0 2W0 5F2 5I1 5W1 2F3 2I1 5I2 5F3 2W1 2I2 ..
//! rank 3 | ... ... ... 3F0 4F0 3F1 4F1 ... ... ... ... 4I0 3I0 3F2 4F2 4W0 3W0 4I1 3I1 3F3 4F3 4I2 3I2 4W1 ..
//! ```
//!
//! [ZB-V](super::zb_v) with a third of its limit: a rank holds the activations of at most (p + 4) / 3 micro-batches, rounded
//! down. Little is left to even out passes that take different times.

use super::greedy::Goal;
use super::vee::{Limit, vee};
use super::{Made, Sizes};
use crate::Result;
use crate::plan::Costs;

pub(super) fn v_min(sizes: Sizes, costs: &Costs) -> Result<Made> {
    // On two ranks a micro-batch is through so soon that one and a half do.
    let limit = Limit {
        held: (sizes.ranks + 4) / 3,
        done: u32::from(sizes.ranks == 2),
    };
    vee(sizes, costs, limit, Goal::Makespan)
}
