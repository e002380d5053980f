//! The validations of a run, and the checkpoint with the lowest validation loss.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::Result;
use crate::data::{DataSource, Fingerprint};
use crate::pipeline::Evaluation;

/// What a run validates on, and how often. Default: on one micro-batch, after the last step.
#[derive(Clone)]
pub struct Validation {
    pub(super) sources: Vec<ValidationSource>,
    pub(super) every: u64,
}

/// A source of data to validate on.
#[derive(Clone)]
pub struct ValidationSource {
    /// What it is called, beside others.
    pub name: String,
    /// The data.
    pub source: Arc<dyn DataSource>,
    /// How many micro-batches of its step 0 are used, 1 or more.
    pub micro_batches: u32,
}

impl Validation {
    /// A validation on the first micro-batches of this source's step 0.
    pub fn new(source: Arc<dyn DataSource>) -> Self {
        Self::on_each(vec![ValidationSource { name: source.describe(), source, micro_batches: 1 }])
    }

    /// A validation on several sources. The run also tells the loss of each. Its own loss is the mean over
    /// the targets of all. A run refuses a validation without a source.
    pub fn on_each(sources: Vec<ValidationSource>) -> Self {
        Self { sources, every: 0 }
    }

    /// The number of micro-batches of each source, 1 or more. Default: 1.
    #[must_use]
    pub fn micro_batches(mut self, micro_batches: u32) -> Self {
        self.sources.iter_mut().for_each(|one| one.micro_batches = micro_batches);
        self
    }

    /// Validates every `steps` steps, besides once after the last step. Default: 0, only after the last step.
    #[must_use]
    pub fn every(self, steps: u64) -> Self {
        Self { every: steps, ..self }
    }

    /// How many micro-batches of each source are used.
    pub(super) fn sizes(&self) -> String {
        self.sources.iter().map(|one| one.micro_batches.to_string()).collect::<Vec<_>>().join(" and ")
    }

    /// A text that names its data, and how much of each source is used. It must be equal in all processes.
    pub(super) fn data(&self) -> Result<String> {
        let each = self.sources.iter().map(|one| {
            let Fingerprint { contents, batches, .. } = one.source.fingerprint()?;
            Ok(format!("{} micro-batches of {contents} ({batches})", one.micro_batches))
        });
        Ok(each.collect::<Result<Vec<_>>>()?.join(" and "))
    }
}

impl fmt::Debug for Validation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Validation")
            .field("sources", &self.sources)
            .field("every", &self.every)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for ValidationSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ValidationSource")
            .field("name", &self.name)
            .field("micro_batches", &self.micro_batches)
            .finish_non_exhaustive()
    }
}

/// The losses of a validation.
#[derive(Clone, Debug)]
pub(super) struct Validated {
    /// Over the targets of all sources.
    pub(super) all: Evaluation,
    /// Where there are several sources, the loss of each, with its name.
    pub(super) each: Vec<(String, Evaluation)>,
    /// Whether the loss is the lowest so far.
    pub(super) best: bool,
}

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
