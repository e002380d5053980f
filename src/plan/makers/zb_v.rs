//! ZB-V: no bubble in the memory of 1F1B (Qi et al., arXiv 2401.10241, section 6).
//!
//! ```text
//! rank 0 | 0F0 0F1 0F2 0F3 0F4 0F5 0F6 7F0 7I0 7F1 7I1 7F2 7I2 7F3 7I3 0I0 0F7 7F4 7I4 0I1 7W0 7F5 7I5 0I2 ..
//! rank 1 | ... 1F0 1F1 1F2 1F3 1F4 6F0 1F5 6F1 6I0 6F2 6I1 6F3 6I2 1I0 1F6 6F4 6I3 1I1 1F7 6F5 6I4 1I2 6I5 ..
//! rank 2 | ... ... 2F0 2F1 2F2 5F0 2F3 5F1 2F4 5F2 5I0 5F3 5I1 2I0 2F5 5F4 5I2 2I1 2F6 5F5 5I3 2I2 2F7 5F6 ..
//! rank 3 | ... ... ... 3F0 4F0 3F1 4F1 3F2 4F2 3F3 4F3 4I0 3I0 3F4 4F4 4I1 3I1 3F5 4F5 4I2 3I2 3F6 4F6 4I3 ..
//! ```
//!
//! Two stages a rank, out and back, so that a micro-batch's first gradient comes where its last forward was, on rank 0. Every
//! rank holds the activations of at most p micro-batches. With all passes alike a rank is busy from its first pass to its
//! last, and the step idles (p - 1) / 2 forwards. It is chosen for the longest span, as the paper counts.

use super::greedy::Goal;
use super::vee::{Limit, vee};
use super::{Made, Sizes};
use crate::Result;
use crate::plan::Costs;

pub(super) fn zb_v(sizes: Sizes, costs: &Costs) -> Result<Made> {
    let limit = Limit {
        held: sizes.ranks,
        done: 0,
    };
    vee(sizes, costs, limit, Goal::Span)
}
