//! The checks of every part of the data.

use std::ops::Range;

use crate::error::{DataError, Error, Result};

/// Refuses a range that is reversed or goes beyond the data's `count` tokens or images.
pub(super) fn check_span(data: &str, span: &Range<u64>, count: u64) -> Result<()> {
    if span.start <= span.end && span.end <= count {
        return Ok(());
    }
    Err(Error::from(DataError::new(format!(
        "{}..{} is not a part of {data}, which has 0..{count}",
        span.start, span.end
    ))))
}

/// Refuses micro-batches without rows.
pub(super) fn check_rows(data: &str, rows: usize) -> Result<()> {
    if rows == 0 { Err(empty(data, "row")) } else { Ok(()) }
}

/// The error for an empty micro-batch.
pub(super) fn empty(data: &str, what: &'static str) -> Error {
    DataError::new(format!("a micro-batch of {data} needs at least one {what}, 0 were asked for")).into()
}
