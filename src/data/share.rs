//! How much of the data is set aside for validation.

use std::ops::Range;

/// How much of the data is set aside for validation: always its last part, so that it never overlaps
/// training.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Share {
    /// A fraction of the whole, from 0 to below 1.
    Fraction(f64),
    /// This many tokens or rows.
    Count(u64),
}

impl Share {
    /// The parts of `0..total` for training and for validation. Training is empty when all of it is asked
    /// for.
    pub fn split(self, total: u64) -> (Range<u64>, Range<u64>) {
        let held = match self {
            Self::Fraction(fraction) => (total as f64 * fraction).round() as u64,
            Self::Count(count) => count,
        };
        let cut = total.saturating_sub(held);
        (0..cut, cut..total)
    }
}
