//! Settings that make no sense.

use super::{Cause, Result};

/// A setting that makes no sense.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingError {
    /// 0 where there must be at least one.
    #[error("{what} is 0: it must be at least 1")]
    Zero {
        /// The setting.
        what: &'static str,
    },
    /// Heads that do not divide the width.
    #[error("dim {dim} is not divisible by heads {heads}: choose heads that divide dim")]
    Heads {
        /// The width.
        dim: usize,
        /// The heads.
        heads: usize,
    },
    /// A probability of dropout out of its range.
    #[error("dropout {rate} is not a probability below 1: choose one in 0..1, such as 0.1")]
    Dropout {
        /// The probability.
        rate: f32,
    },
    /// A label smoothing out of its range.
    #[error("label smoothing {share} is not a share below 1: choose one in 0..1, such as 0.1")]
    Smoothing {
        /// The share of a target that is spread.
        share: f32,
    },
    /// A perceptron with fewer than two widths.
    #[error("sizes {sizes:?} are too few: give the input's and the output's width at least")]
    Widths {
        /// The widths.
        sizes: Vec<usize>,
    },
    /// A name that no device has.
    #[error("`{name}` is no device: write `cpu`, or `cuda:0` for the first GPU")]
    NoDevice {
        /// The name.
        name: String,
    },
    /// Threads that the system cannot start.
    #[error("no {count} threads: {source}")]
    Threads {
        /// How many there should be.
        count: usize,
        /// The system's reason.
        source: Cause,
    },
}

/// Refuses sizes that must not be zero.
pub(crate) fn check_positive(sizes: &[(&'static str, usize)]) -> Result<()> {
    match sizes.iter().find(|(_, size)| *size == 0) {
        Some(&(what, _)) => Err(SettingError::Zero { what }.into()),
        None => Ok(()),
    }
}
