//! What is checked of every part of the data.

use std::ops::Range;

use crate::error::{DataError, Error, Result};

/// Refuses a range that is reversed or reaches beyond the `count` tokens or images of this data.
pub(super) fn check_span(data: &str, span: &Range<u64>, count: u64) -> Result<()> {
    if span.start <= span.end && span.end <= count {
        return Ok(());
    }
    Err(Error::from(DataError::OutsideData {
        data: data.to_owned(),
        start: span.start,
        end: span.end,
        count,
    }))
}

/// Refuses micro-batches without rows.
pub(super) fn check_rows(data: &str, rows: usize) -> Result<()> {
    if rows == 0 {
        Err(empty(data, "row"))
    } else {
        Ok(())
    }
}

/// The refusal of a micro-batch with nothing in it.
pub(super) fn empty(data: &str, what: &'static str) -> Error {
    let data = data.to_owned();
    DataError::EmptyMicroBatch { data, what }.into()
}
