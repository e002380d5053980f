//! The last layer of a reward model.

use super::part::Part;
use crate::error::Result;
use crate::layers::{Layout, Linear};
use crate::parameter::Parameter;
use crate::parameter::init::Init;

/// Its part, behind activations of width `dim`.
pub(super) fn part(dim: usize) -> Part {
    Part::Linear([dim, 1], Layout::OutIn, false)
}

/// The product. It starts with random weights also where the others [start at zero] to be read: a model of
/// texts, from which a reward model starts, has no such weights. It has no adapter.
///
/// [start at zero]: crate::starting_at_zero
pub(super) fn layer(dim: usize, init: Init, seed: u64) -> Result<Linear> {
    let weight = Parameter::new("score.weight", &[1, dim], Init::Zeros, seed).started(init, seed);
    Linear::new("score", [dim, 1], Init::Zeros, seed).without_bias().without_adapters().with_weight(weight)
}
