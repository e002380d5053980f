//! DOC

use super::greedy::Goal;
use super::vee::vee;
use super::{Made, Sizes};
use crate::Result;
use crate::schedule::Costs;

pub(super) fn v_half(sizes: Sizes, costs: &Costs) -> Result<Made> {
    vee(sizes, costs, (sizes.ranks + 2) / 2, Goal::Makespan)
}
