//! ZB-H1, also ZB-1p: the backward's second half fills what 1F1B idles, in no more memory than 1F1B's (Qi et al., arXiv
//! 2401.10241).
//!
//! ```text
//! rank 0 | F0 F1 F2 F3 .. .. .. I0 W0 F4 I1 W1 F5 I2 W2 I3 W3 I4 W4 I5 W5
//! rank 1 | .. F0 F1 F2 .. .. I0 F3 I1 W0 F4 I2 W1 F5 I3 W2 I4 W3 I5 W4 W5
//! rank 2 | .. .. F0 F1 .. I0 F2 I1 F3 I2 W0 F4 I3 W1 F5 I4 W2 I5 W3 W4 W5
//! rank 3 | .. .. .. F0 I0 F1 I1 F2 I2 F3 I3 W0 F4 I4 W1 F5 I5 W2 W3 W4 W5
//! ```
//!
//! When F, I and W take the same time, as here, a rank idles for p - 1 of them, a third of what it does in 1F1B. The order
//! follows from the costs. No rank holds more than the activations of p micro-batches.

use super::greedy::Goal;
use super::zero_bubble::zero_bubble;
use super::{Made, Sizes};
use crate::Result;
use crate::plan::Costs;

pub(super) fn zb_h1(sizes: Sizes, costs: &Costs) -> Result<Made> {
    let ranks = sizes.ranks;
    let as_1f1b = (0..ranks).map(|rank| ranks - rank).collect();
    let in_flight = [as_1f1b, vec![ranks; ranks as usize]];
    zero_bubble(sizes, costs, ranks, &in_flight, Goal::Makespan)
}
