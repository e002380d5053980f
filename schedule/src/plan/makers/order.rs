//! The input and the output of a maker.

use crate::Result;
use crate::plan::Costs;
use crate::schedule::{Cell, Pass, Placement};

/// The sizes that a schedule is made for. Each is at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sizes {
    pub(super) ranks: u32,
    /// Stages on each rank.
    pub(super) chunks: u32,
    pub(super) micro_batches: u32,
}

/// The placement and each rank's compute passes in order.
pub(super) struct Order {
    pub(super) placement: Placement,
    pub(super) passes: Vec<Vec<(Pass, Cell)>>,
    /// The forwards of the pairs. See [`Schedule::with_pairs`](crate::schedule::Schedule::with_pairs).
    pub(super) pairs: Vec<Cell>,
}

/// Makes the order of a schedule. Only some makers use the costs.
pub(super) type Maker = fn(Sizes, &Costs) -> Result<Order>;
