//! Gives parameters their weights and optimizer state, from a checkpoint or from memory.

use pipewright_stages::optimizer::{self, Optimizer};
use pipewright_stages::{Parameter, Shard};

use super::layout::{TensorInfo, info, state_tensors};
use crate::error::Result;

/// Has whole tensors by the names of parameters.
pub(super) trait Source {
    /// Refuses a parameter whose numbers stayed elsewhere if they are not what they were.
    fn compare_elsewhere(&mut self, parameter: &Parameter) -> Result<()>;

    /// Whether it has optimizer state of a parameter that is optimized: not before the first step.
    fn has_state(&self, parameter: &str) -> bool;

    /// Gives a parameter its numbers.
    fn value(&mut self, parameter: &mut Parameter) -> Result<()>;

    /// Gives the bytes of a whole tensor of the optimizer: the `index`-th of a parameter.
    fn state(&mut self, parameter: &str, index: usize, tensor: &TensorInfo, bytes: &mut [u8]) -> Result<()>;
}

/// Gives parameters their weights and optimizer state. A parameter with a part of a tensor gets that part.
pub(super) fn fill<'a>(
    parameters: impl Iterator<Item = &'a mut Parameter>,
    optimizer: &dyn Optimizer,
    source: &mut impl Source,
) -> Result<()> {
    for parameter in parameters {
        if parameter.quantisation().is_some() {
            source.compare_elsewhere(parameter)?;
            continue;
        }
        if parameter.own_places().is_empty() {
            parameter.make_state(&optimizer::states_of(optimizer, parameter));
            continue;
        }
        let count = parameter.count();
        source.value(parameter)?;
        if !source.has_state(parameter.name()) {
            continue;
        }
        parameter.make_state(&optimizer::states_of(optimizer, parameter));
        let (owned, dims) = (parameter.owned(), parameter.dims().to_vec());
        let name = parameter.name().to_owned();
        let tensors = state_tensors(&info(parameter), optimizer);
        let own = optimizer::states_of(optimizer, parameter);
        for (index, (tensor, own)) in tensors.iter().zip(&own).enumerate().take(parameter.state.len()) {
            if parameter.state_bytes(own) == tensor.bytes() {
                source.state(&name, index, tensor, parameter.stored_state_mut(index, own))?;
                continue;
            }
            let mut whole = vec![0; tensor.bytes()];
            source.state(&name, index, tensor, &mut whole)?;
            if parameter.shard() != Shard::WHOLE {
                let mut numbers = vec![0.0; count];
                parameter.take_own(&own.format.numbers(&whole), &mut numbers);
                whole = own.format.stored(&numbers);
            }
            let places = own.bytes_of(&owned, &dims);
            parameter.stored_state_mut(index, own).copy_from_slice(&whole[places]);
        }
    }
    Ok(())
}

/// Gives a parameter that is divided among shards its own numbers of a whole tensor.
pub(super) fn take_own(parameter: &mut Parameter, whole: &[f32]) {
    let mut own = std::mem::take(&mut parameter.value);
    parameter.take_own(whole, &mut own);
    parameter.value = own;
}
