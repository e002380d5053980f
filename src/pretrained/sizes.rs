//! Sizes that a model can have.

use std::path::Path;

use super::architecture::Architecture;
use crate::error::{Error, Problem, Result};

/// The largest size of anything. Products of several such sizes do not overflow.
const LARGEST: u64 = 1 << 24;

/// What a size must be, for messages.
pub(super) const WHOLE: &str = "a whole number of at most 16777216";

/// The most blocks, as in a config.
const LAYERS: u64 = 1000;

/// What a number of blocks must be, for messages.
pub(super) const FEW: &str = "a whole number of at most 1000";

/// A number of blocks, unless it is one that no model has.
pub(super) fn possible_layers(count: u64) -> Option<usize> {
    (count <= LAYERS).then_some(count as usize)
}

/// A size, unless it is one that no model has.
pub(super) fn possible(size: u64) -> Option<usize> {
    (size <= LARGEST).then_some(size as usize)
}

/// Refuses a model that cannot be made. `path` is the file that describes it.
pub(super) fn check(path: &Path, architecture: &Architecture) -> Result<()> {
    match architecture.model() {
        Ok(_) => Ok(()),
        Err(Error::Stage(source)) => {
            let text = format!("`{}`: no model has these settings: {source}", path.display());
            Err(Error::Pretrained(Problem::because(text, source)))
        }
        Err(error) => Err(error),
    }
}
