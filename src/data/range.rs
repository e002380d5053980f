//! Ranges of the data: what is set aside for validation, and the checks of every range.

use std::ops::Range;

use serde::{Deserialize, Serialize};

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

/// How much of the data is set aside for validation. It is always the last part, so that it never overlaps
/// training.
///
/// In configs: a whole number is a count, a number with a decimal point is a fraction.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged, expecting = "a fraction from 0 to below 1, or a whole number of tokens or rows")]
pub enum Share {
    /// This many tokens or rows.
    Count(u64),
    /// A fraction of the whole, from 0 to below 1.
    Fraction(f64),
}

impl Share {
    /// The ranges of `0..total` for training and for validation. Training is empty if validation takes all.
    pub fn split(self, total: u64) -> (Range<u64>, Range<u64>) {
        let held = match self {
            Self::Fraction(fraction) => (total as f64 * fraction).round() as u64,
            Self::Count(count) => count,
        };
        let cut = total.saturating_sub(held);
        (0..cut, cut..total)
    }
}
