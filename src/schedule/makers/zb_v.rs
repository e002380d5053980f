//! DOC

use super::greedy::Goal;
use super::vee::vee;
use super::{Made, Sizes};
use crate::Result;
use crate::schedule::Costs;

pub(super) fn zb_v(sizes: Sizes, costs: &Costs) -> Result<Made> {
    vee(sizes, costs, sizes.ranks, Goal::Span)
}
