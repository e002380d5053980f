//! Whole tensors in memory, from which ranks with other layers take theirs.

use std::collections::HashMap;

use pipewright_stages::optimizer::Optimizer;
use pipewright_stages::{Parameter, Shard};

use super::copies::Whole;
use super::fill::{Source, fill, take_own};
use super::kept::checksum;
use super::layout::TensorInfo;
use crate::error::{CallError, Result};

/// Parameters with their optimizer state, by their names.
#[derive(Debug, Default)]
pub struct Held(HashMap<String, Whole>);

impl Held {
    /// Adds a parameter.
    pub fn add(&mut self, whole: Whole) {
        self.0.insert(whole.name.clone(), whole);
    }

    /// Gives parameters their weights and optimizer state.
    ///
    /// # Errors
    /// [`CallError`] for a parameter that is not there, or whose numbers are not where they stayed.
    pub fn fill<'a>(
        &self,
        parameters: impl Iterator<Item = &'a mut Parameter>,
        optimizer: &dyn Optimizer,
    ) -> Result<()> {
        fill(parameters, optimizer, &mut &*self)
    }

    fn get(&self, parameter: &str) -> Result<&Whole> {
        let missing = || CallError::new(format!("no rank has given the parameter `{parameter}`"));
        Ok(self.0.get(parameter).ok_or_else(missing)?)
    }
}

impl Source for &Held {
    fn compare_elsewhere(&mut self, parameter: &Parameter) -> Result<()> {
        let before = self.get(parameter.name())?.elsewhere;
        if before == Some(checksum(parameter)) {
            return Ok(());
        }
        let name = parameter.name();
        Err(CallError::new(format!(
            "the weights of `{name}` are not what they were when the training began: was its file changed?"
        ))
        .into())
    }

    fn has_state(&self, parameter: &str) -> bool {
        self.0.get(parameter).is_some_and(|whole| !whole.states.is_empty())
    }

    fn value(&mut self, parameter: &mut Parameter) -> Result<()> {
        let whole = &self.get(parameter.name())?.value;
        match parameter.shard() {
            // Frozen weights may be lent by a file. They are equal already.
            Shard::WHOLE if is_same(&parameter.value, whole) => {}
            Shard::WHOLE => parameter.value.copy_from_slice(whole),
            _ => take_own(parameter, whole),
        }
        Ok(())
    }

    fn state(&mut self, parameter: &str, index: usize, _tensor: &TensorInfo, bytes: &mut [u8]) -> Result<()> {
        bytes.copy_from_slice(&self.get(parameter)?.states[index]);
        Ok(())
    }
}

/// Whether all bits are the same.
fn is_same(ours: &[f32], theirs: &[f32]) -> bool {
    bytemuck::cast_slice::<f32, u8>(ours) == bytemuck::cast_slice::<f32, u8>(theirs)
}
