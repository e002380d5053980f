//! The checkpoint with the lowest validation loss, and what it was validated on.

use serde::{Deserialize, Serialize};

/// The checkpoint with the lowest validation loss of a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Best {
    /// The number of steps after which it was saved.
    pub step: u64,
    /// Its validation loss.
    pub validation_loss: f64,
}

/// The best checkpoint so far, of one validation. Losses of different validation data cannot be compared.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct BestSoFar {
    pub(super) best: Option<Best>,
    /// The micro-batches and the data of the validation, as text.
    pub(super) validation: Option<String>,
}

impl BestSoFar {
    /// Sets the validation. If it differs from the previous one, the best checkpoint is forgotten and
    /// returned.
    pub(super) fn go_on(&mut self, validation: String) -> Option<Best> {
        let is_other = self.validation.as_ref() != Some(&validation);
        self.validation = Some(validation);
        self.best.take_if(|_| is_other)
    }

    /// Takes a checkpoint if its loss is the lowest so far. Returns whether it is.
    pub(super) fn offer(&mut self, checkpoint: Best) -> bool {
        let is_best = self.best.is_none_or(|best| checkpoint.validation_loss < best.validation_loss);
        if is_best {
            self.best = Some(checkpoint);
        }
        is_best
    }

    /// Forgets the checkpoint after `step` steps.
    pub(super) fn forget(&mut self, step: u64) {
        self.best.take_if(|best| best.step == step);
    }
}
