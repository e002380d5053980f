//! Some rows of a micro-batch.

use std::ops::Range;

/// Some rows of a micro-batch, which a loss takes one part after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SomeRows {
    /// The micro-batch.
    pub micro_batch: u32,
    /// These rows of it.
    pub rows: Range<usize>,
    /// How many rows it has.
    pub all: usize,
    /// How many columns of the output count. On a GPU there may be more, for a loss that
    /// [takes wider rows](crate::loss::Loss::takes_wider_rows).
    pub columns: usize,
    /// Whether the gradient is wanted, or the score only.
    pub gradient: bool,
}

impl SomeRows {
    /// Whether no rows came before them.
    pub fn are_first(&self) -> bool {
        self.rows.start == 0
    }

    /// Whether no rows come after them.
    pub fn are_last(&self) -> bool {
        self.rows.end == self.all
    }
}
