//! A copy of what training changes on a rank: its trained weights, running means and optimizer state. The
//! rank can go on from it when its stages are built again, in this process or in another one. So it is in
//! bytes.
//!
//! Of each parameter it has a number of tensors, and before each tensor its length: the weights, and the
//! optimizer's tensors. A frozen parameter that its builder makes has none, but the checksum of its weights.

use pipewright_stages::optimizer::{self, Optimizer};
use pipewright_stages::{Parameter, Part, Stage, copy};

use crate::checkpoint::checksum;
use crate::checksum::Checksum;
use crate::error::{RestartError, Result};
use crate::worker::Worker;
use crate::worker::partials::visit;

impl<S: Stage> Worker<S> {
    /// Remembers the frozen weights as the builders have made them: a snapshot need not have those.
    ///
    /// # Errors
    /// Whatever a GPU reports.
    pub(crate) fn sum_frozen(&mut self) -> Result<()> {
        let mut sums = Vec::new();
        for chunk in &mut self.chunks {
            visit(&mut chunk.stage, |_, parameter| {
                sums.push(match parameter.is_frozen() {
                    true => Some(sum(parameter)?),
                    false => None,
                });
                Ok(())
            })?;
        }
        self.as_built = sums;
        Ok(())
    }

    /// Weights have been replaced. Frozen ones that are not as they were built go with each snapshot from now
    /// on.
    ///
    /// # Errors
    /// Whatever a GPU reports.
    pub(crate) fn compare_frozen(&mut self) -> Result<()> {
        let mut sums = self.as_built.iter_mut();
        for chunk in &mut self.chunks {
            visit(&mut chunk.stage, |_, parameter| {
                if let Some(as_built) = sums.next()
                    && as_built.is_some()
                    && *as_built != Some(sum(parameter)?)
                {
                    *as_built = None;
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Makes a snapshot. The memory of an earlier one is used again.
    ///
    /// # Errors
    /// Whatever a GPU reports.
    pub(crate) fn copy_to(&mut self, snapshot: &mut Vec<u8>) -> Result<()> {
        let mut sums = self.as_built.iter().copied();
        let mut length = 0;
        for chunk in &mut self.chunks {
            visit(&mut chunk.stage, |_, parameter| {
                length += match sums.next().flatten() {
                    Some(as_built) => size_of::<u64>() + as_built.bytes().len(),
                    None => fetched_length(parameter)?,
                };
                Ok(())
            })?;
        }
        if snapshot.len() != length {
            *snapshot = vec![0; length];
        }
        let mut sums = self.as_built.iter().copied();
        let mut rest = &mut snapshot[..];
        for chunk in &mut self.chunks {
            visit(&mut chunk.stage, |_, parameter| {
                match sums.next().flatten() {
                    Some(as_built) => {
                        write(&mut rest, &0_u64.to_le_bytes());
                        write(&mut rest, &as_built.bytes());
                    }
                    None => write_numbers(&mut rest, parameter),
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Sets weights and optimizer states to the values in a snapshot of this rank. Frozen weights that the
    /// snapshot has go with each later one too.
    ///
    /// # Errors
    /// [`RestartError`] if the builders have built other parameters or other frozen weights,
    /// or the snapshot is damaged; and whatever a GPU reports.
    pub(crate) fn restore(&mut self, mut snapshot: &[u8]) -> Result<()> {
        let mut sums = self.as_built.iter_mut();
        for chunk in &mut self.chunks {
            let stage = chunk.id;
            for parameter in chunk.stage.parameters() {
                let Some(restored) = restore(&mut snapshot, parameter, &*self.plan.optimizer)? else {
                    let parameter = parameter.name();
                    return Err(RestartError::new(format!(
                        "stage {stage} was built again after a failure, and its parameter `{parameter}` is \
                         not what it was: its builder must build the same each time"
                    ))
                    .into());
                };
                if let Some(as_built) = sums.next()
                    && restored == Restored::Numbers
                {
                    *as_built = None;
                }
            }
        }
        match snapshot.is_empty() {
            true => Ok(()),
            false => {
                Err(RestartError::new("a snapshot is of other stages: its rank has fewer numbers").into())
            }
        }
    }
}

/// What a snapshot had of a parameter.
#[derive(PartialEq)]
enum Restored {
    /// All its numbers.
    Numbers,
    /// The checksum of its weights, which are as they were built.
    AsBuilt,
}

/// The checksum of a parameter's weights.
fn sum(parameter: &mut Parameter) -> Result<Checksum> {
    parameter.fetch(Part::Value)?;
    Ok(checksum(parameter))
}

/// The length of a parameter's numbers in a snapshot. They are fetched.
fn fetched_length(parameter: &mut Parameter) -> Result<usize> {
    parameter.fetch(Part::Value)?;
    parameter.fetch(Part::State)?;
    let tensors = std::iter::once(&parameter.value).chain(&parameter.state);
    let lengths = tensors.map(|numbers| size_of::<u64>() + size_of_val(&**numbers));
    Ok(size_of::<u64>() + lengths.sum::<usize>())
}

fn write_numbers(rest: &mut &mut [u8], parameter: &Parameter) {
    write(rest, &(1 + parameter.state.len() as u64).to_le_bytes());
    for numbers in std::iter::once(&parameter.value).chain(&parameter.state) {
        write(rest, &(numbers.len() as u64).to_le_bytes());
        write(rest, bytemuck::cast_slice(numbers));
    }
}

fn write(rest: &mut &mut [u8], bytes: &[u8]) {
    let (to, after) = std::mem::take(rest).split_at_mut(bytes.len());
    copy(bytes, to);
    *rest = after;
}

/// Sets a parameter to what comes next in a snapshot. Returns what that was, if it can be of this parameter.
fn restore(
    snapshot: &mut &[u8],
    parameter: &mut Parameter,
    optimizer: &dyn Optimizer,
) -> Result<Option<Restored>> {
    let count = number(snapshot);
    let tensors = match count {
        None => return Ok(None),
        Some(0) => {
            let as_built = snapshot.split_off(..size_of::<Checksum>());
            let is_equal = parameter.is_frozen() && as_built == Some(&sum(parameter)?.bytes()[..]);
            return Ok(is_equal.then_some(Restored::AsBuilt));
        }
        Some(1) => Vec::new(),
        Some(_) => optimizer::states_of(optimizer, parameter),
    };
    parameter.make_state(&tensors);
    let is_as_many = count == Some(1 + parameter.state.len() as u64);
    if !is_as_many || !read_numbers(snapshot, parameter) {
        return Ok(None);
    }
    parameter.store(Part::Value)?;
    parameter.store(Part::State)?;
    Ok(Some(Restored::Numbers))
}

/// Reads what [`write_numbers`] has written, if it is of such a parameter.
fn read_numbers(snapshot: &mut &[u8], parameter: &mut Parameter) -> bool {
    let mut tensors = std::iter::once(&mut parameter.value).chain(&mut parameter.state);
    tensors.all(|numbers| {
        let is_as_long = number(snapshot) == Some(numbers.len() as u64);
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut numbers[..]);
        match snapshot.split_off(..bytes.len()).filter(|_| is_as_long) {
            Some(from) => {
                copy(from, bytes);
                true
            }
            None => false,
        }
    })
}

fn number(bytes: &mut &[u8]) -> Option<u64> {
    let (number, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(u64::from_le_bytes(*number))
}
