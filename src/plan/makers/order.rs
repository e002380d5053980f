//! What a maker is given, and what it gives.

use crate::Result;
use crate::plan::Costs;
use crate::schedule::{Cell, Pass, Placement};

/// How many of what a schedule is made for; each at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sizes {
    pub(super) ranks: u32,
    /// Stages on each rank.
    pub(super) chunks: u32,
    pub(super) micro_batches: u32,
}

/// Where the stages live, and each rank's compute passes in order.
pub(super) struct Order {
    pub(super) placement: Placement,
    pub(super) passes: Vec<Vec<(Pass, Cell)>>,
    /// The forwards that are pairs with the backward behind them: [`Schedule::with_pairs`](crate::schedule::Schedule::with_pairs).
    pub(super) pairs: Vec<Cell>,
}

/// Makes the order of a schedule. The costs matter to those that fit their order to them.
pub(super) type Maker = fn(Sizes, &Costs) -> Result<Order>;
