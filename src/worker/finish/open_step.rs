//! A step that a rank ended before all ranks agreed on it, and what it needs to take that back.

use pipewright_stages::{Parameter, Part, copy};

use super::agreement::{Agreement, StepOutcome};
use crate::error::Result;

/// What a rank has of a step that it ended before all ranks agreed on it.
#[derive(Debug, Default)]
pub(in crate::worker) struct OpenStep {
    /// The number and the learning rate of that step, until the ranks agree.
    pub(super) open: Option<(u64, f64)>,
    /// The same, once it is taken back, and how it has to end.
    pub(super) taken_back: Option<((u64, f64), StepOutcome)>,
    /// By trained parameter, what it was before the update.
    pub(super) kept: Vec<Kept>,
    /// Blocks that have been read, for such small ones as are sent here.
    pub(super) blocks: Vec<Vec<u8>>,
    /// The losses of the current step.
    pub(super) losses: Agreement,
}

/// A parameter's weights and optimizer state.
#[derive(Debug, Default)]
pub(super) struct Kept {
    value: Vec<f32>,
    state: Vec<Vec<f32>>,
}

impl Kept {
    /// Copies them.
    pub(super) fn keep(&mut self, parameter: &Parameter) {
        copy_to(&parameter.value, &mut self.value);
        self.state.resize_with(parameter.state.len(), Vec::new);
        for (from, to) in parameter.state.iter().zip(&mut self.state) {
            copy_to(from, to);
        }
    }

    /// Sets them to what they were.
    pub(super) fn give_back(&self, parameter: &mut Parameter) -> Result<()> {
        copy(&self.value, &mut parameter.value);
        // Before the first update there was none.
        parameter.state.truncate(self.state.len());
        for (from, to) in self.state.iter().zip(&mut parameter.state) {
            copy(from, to);
        }
        parameter.store(Part::Value)?;
        Ok(parameter.store(Part::State)?)
    }
}

fn copy_to(from: &[f32], to: &mut Vec<f32>) {
    to.resize(from.len(), 0.0);
    copy(from, to);
}
