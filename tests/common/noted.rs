//! An optimizer that notes what it updates.

use std::sync::{Arc, Mutex};

use pipewright::stages::optimizer::{AdamW, Optimizer, StateTensor, Update};
use pipewright::stages::{Parameter, Result, Together};

/// AdamW, which notes the name of each parameter that it updates, and on how many numbers it has state.
#[derive(Clone, Debug, Default)]
pub(crate) struct Noted {
    pub(crate) adamw: AdamW,
    pub(crate) updated: Arc<Mutex<Vec<(String, usize)>>>,
}

impl Noted {
    /// The numbers of state that it had in the updates of this parameter.
    pub(crate) fn of(&self, name: &str) -> Vec<usize> {
        let updated = self.updated.lock().expect("no panic");
        updated.iter().filter(|(other, _)| other == name).map(|(_, state)| *state).collect()
    }
}

impl Optimizer for Noted {
    fn states(&self, name: &str, dims: &[usize]) -> Vec<StateTensor> {
        self.adamw.states(name, dims)
    }

    fn update(&self, parameter: &mut Parameter, by: Update, together: &mut Together) -> Result<()> {
        self.adamw.update(parameter, by, together)?;
        let state = parameter.state.iter().map(|numbers| numbers.len()).sum();
        self.updated.lock().expect("no panic").push((parameter.name().to_owned(), state));
        Ok(())
    }

    fn updates_parts(&self) -> bool {
        true
    }
}
