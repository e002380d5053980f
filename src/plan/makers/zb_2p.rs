//! ZB-2p, by hand known as ZB-H2: with twice the memory of 1F1B no rank idles once it has begun (Qi et al., arXiv
//! 2401.10241).
//!
//! ```text
//! rank 0 | F0 F1 F2 F3 F4 F5 F6 I0 W0 I1 W1 I2 W2 I3 W3 I4 W4 I5 W5 I6 W6
//! rank 1 | .. F0 F1 F2 F3 F4 I0 F5 I1 F6 I2 W0 I3 W1 I4 W2 I5 W3 I6 W4 W5 W6
//! rank 2 | .. .. F0 F1 F2 I0 F3 I1 F4 I2 F5 I3 F6 I4 W0 I5 W1 I6 W2 W3 W4 W5 W6
//! rank 3 | .. .. .. F0 I0 F1 I1 F2 I2 F3 I3 F4 I4 F5 I5 F6 I6 W0 W1 W2 W3 W4 W5 W6
//! ```
//!
//! The ranks begin and end one after the other, so only the span is without a bubble: a step that ends for all at once takes
//! as long as in ZB-H1. The order follows from the costs. No rank holds more than the activations of 2p micro-batches; when F,
//! I and W take the same time 2p - 1 do, those that wait for their W left out.

use super::greedy::Goal;
use super::zero_bubble::zero_bubble;
use super::{Made, Sizes};
use crate::Result;
use crate::plan::Costs;

pub(super) fn zb_2p(sizes: Sizes, costs: &Costs) -> Result<Made> {
    let ranks = sizes.ranks;
    let twice_1f1b = (0..ranks).map(|rank| 2 * (ranks - rank)).collect();
    let in_flight = [twice_1f1b, vec![2 * ranks; ranks as usize]];
    zero_bubble(sizes, costs, 2 * ranks, &in_flight, Goal::Span)
}
