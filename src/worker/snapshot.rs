//! A copy of a rank's weights and optimizer state, from which it can go on when its stages are built again.
//! [`Snapshot::append`] and [`Snapshot::read`] are for a copy that another process keeps.

use pipewright_stages::optimizer::{Optimizer, StateTensor};
use pipewright_stages::{Parameter, Part};

use crate::error::Result;

/// The parameters of a rank after a step, in the order of its stages. It keeps its memory.
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    parameters: Vec<Numbers>,
}

#[derive(Debug, Default)]
struct Numbers {
    value: Vec<f32>,
    state: Vec<Vec<f32>>,
}

impl Snapshot {
    /// Copies the rank's parameter with this number. A frozen one never changes, so it is copied once.
    ///
    /// # Errors
    /// Whatever a GPU reports.
    pub(super) fn copy(&mut self, place: usize, parameter: &mut Parameter) -> Result<()> {
        if place == self.parameters.len() {
            self.parameters.push(Numbers::default());
        }
        let copy = &mut self.parameters[place];
        if parameter.is_frozen() && !copy.value.is_empty() {
            return Ok(());
        }
        parameter.fetch(Part::Value)?;
        parameter.fetch(Part::State)?;
        refill(&mut copy.value, &parameter.value);
        copy.state.resize_with(parameter.state.len(), Vec::new);
        for (copy, state) in copy.state.iter_mut().zip(&parameter.state) {
            refill(copy, state);
        }
        Ok(())
    }

    /// Appends a parameter to a snapshot in bytes.
    ///
    /// # Errors
    /// Whatever a GPU reports.
    pub(super) fn append(bytes: &mut Vec<u8>, parameter: &mut Parameter) -> Result<()> {
        parameter.fetch(Part::Value)?;
        parameter.fetch(Part::State)?;
        bytes.extend((parameter.state.len() as u64).to_le_bytes());
        for numbers in std::iter::once(&parameter.value).chain(&parameter.state) {
            bytes.extend((numbers.len() as u64).to_le_bytes());
            bytes.extend_from_slice(bytemuck::cast_slice(numbers));
        }
        Ok(())
    }

    /// Reads a snapshot in bytes. `None` if it is damaged.
    pub(crate) fn read(mut bytes: &[u8]) -> Option<Self> {
        let mut snapshot = Self::default();
        while !bytes.is_empty() {
            let states = number(&mut bytes)?;
            let value = numbers(&mut bytes)?;
            let state = (0..states).map(|_| numbers(&mut bytes)).collect::<Option<_>>()?;
            snapshot.parameters.push(Numbers { value, state });
        }
        Some(snapshot)
    }

    /// Its size in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        let numbers = |of: &Numbers| of.value.len() + of.state.iter().map(Vec::len).sum::<usize>();
        (size_of::<f32>() * self.parameters.iter().map(numbers).sum::<usize>()) as u64
    }

    /// Sets the rank's parameter with this number to what was copied. Returns whether it can be the same one.
    ///
    /// # Errors
    /// Whatever a GPU reports.
    pub(super) fn restore(
        &self,
        place: usize,
        parameter: &mut Parameter,
        optimizer: &dyn Optimizer,
    ) -> Result<bool> {
        let Some(copy) = self.parameters.get(place) else {
            return Ok(false);
        };
        let tensors = match copy.state.is_empty() {
            true => Vec::new(),
            false => optimizer.states(parameter.name(), parameter.dims()),
        };
        if !copy.fits(parameter, &tensors) {
            return Ok(false);
        }
        pipewright_stages::copy(&copy.value, &mut parameter.value);
        parameter.make_state(&tensors);
        for (state, copy) in parameter.state.iter_mut().zip(&copy.state) {
            pipewright_stages::copy(copy, state);
        }
        parameter.store(Part::Value)?;
        parameter.store(Part::State)?;
        Ok(true)
    }
}

impl Numbers {
    /// Whether these can be of this parameter, with these tensors of the optimizer.
    fn fits(&self, parameter: &Parameter, tensors: &[StateTensor]) -> bool {
        let state = self.state.iter().map(Vec::len);
        let expected = tensors.iter().map(|tensor| parameter.state_numbers(tensor));
        self.value.len() == parameter.value.len() && state.eq(expected)
    }
}

fn number(bytes: &mut &[u8]) -> Option<u64> {
    let (number, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(u64::from_le_bytes(*number))
}

fn numbers(bytes: &mut &[u8]) -> Option<Vec<f32>> {
    let count = usize::try_from(number(bytes)?)
        .ok()?
        .checked_mul(size_of::<f32>())?;
    let (numbers, rest) = bytes.split_at_checked(count)?;
    *bytes = rest;
    let numbers = numbers.as_chunks().0.iter();
    Some(numbers.map(|number| f32::from_ne_bytes(*number)).collect())
}

fn refill(copy: &mut Vec<f32>, numbers: &[f32]) {
    copy.resize(numbers.len(), 0.0);
    pipewright_stages::copy(numbers, copy);
}
