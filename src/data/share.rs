//! How much of the data is set aside for validation.

use std::ops::Range;

use serde::{Deserialize, Serialize};

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
