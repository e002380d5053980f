//! How large what the ranks send each other may be.

use pipewright_stages::{Shape, Stage};

use super::running::Pipeline;
use super::shapes::widest;
use crate::actor::Ranks;
use crate::error::Result;
use crate::groups::Groups;
use crate::worker::ParameterInfo;

/// The bytes of a number. Some take less.
const NUMBER: u64 = 4;

/// Of a small model, blocks have as many numbers at most: a bucket of gradients.
const BUCKET: u64 = 1 << 20;

/// How often the numbers of a model are in a block, if they are in no more gradient groups: parameters have
/// optimizer state, and of each number something is told at a step's end.
const OFTEN: u32 = 16;

/// The most bytes of a wire with `numbers` numbers.
pub(super) fn wire(numbers: usize) -> u64 {
    (numbers as u64).saturating_mul(NUMBER)
}

/// The most bytes of a block. Ranks add up gradients in blocks, which have each number once for each gradient
/// group at most.
pub(super) fn block(parameters: &[ParameterInfo], groups: Groups) -> u64 {
    let numbers = parameters
        .iter()
        .map(|info| info.dims.iter().product::<usize>() as u64);
    let often = u64::from(groups.count().max(OFTEN));
    numbers
        .sum::<u64>()
        .saturating_add(BUCKET)
        .saturating_mul(NUMBER * often)
}

impl<S: Stage> Pipeline<S> {
    /// Lets the ranks of all processes send wires of `numbers` numbers from now on.
    pub(super) fn allow(&self, numbers: usize) -> Result<()> {
        match self.ranks.peers().processes() {
            1 => Ok(()),
            _ => self.ranks.peers().allow(wire(numbers), 0),
        }
    }

    /// Lets them send wires for an input of this shape, where it is larger than the training data's. An input
    /// that a stage refuses allows nothing.
    pub(super) fn allow_for(&self, input: Shape) -> Result<()> {
        let size = |shape: &Shape| shape.dims().iter().product::<usize>();
        if self.ranks.peers().processes() == 1 || size(&input) <= size(&self.data.shapes().0) {
            return Ok(());
        }
        match widest(&self.ranks, self.schedule(), input) {
            Ok(numbers) => self.allow(numbers),
            Err(error) if error.is_echo() => Err(error),
            Err(_) => Ok(()),
        }
    }
}

/// Says in all processes how large what the ranks send may be.
pub(super) fn agree<S: Stage>(
    ranks: &Ranks<S>,
    numbers: usize,
    parameters: &[ParameterInfo],
    groups: Groups,
) -> Result<()> {
    match ranks.peers().processes() {
        1 => Ok(()),
        _ => ranks.peers().allow(wire(numbers), block(parameters, groups)),
    }
}
