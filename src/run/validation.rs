//! The validations of a run.

use std::fmt;
use std::sync::Arc;

use crate::Result;
use crate::data::{DataSource, Fingerprint};

/// What a run validates on, and how often. Default: on one micro-batch, after the last step.
#[derive(Clone)]
pub struct Validation {
    pub(super) source: Arc<dyn DataSource>,
    pub(super) micro_batches: u32,
    pub(super) every: u64,
}

impl Validation {
    /// A validation on the first micro-batches of this source's step 0.
    pub fn new(source: Arc<dyn DataSource>) -> Self {
        Self { source, micro_batches: 1, every: 0 }
    }

    /// The number of micro-batches, 1 or more. Default: 1.
    #[must_use]
    pub fn micro_batches(self, micro_batches: u32) -> Self {
        Self { micro_batches, ..self }
    }

    /// Validates every `steps` steps, besides once after the last step. Default: 0, only after the last step.
    #[must_use]
    pub fn every(self, steps: u64) -> Self {
        Self { every: steps, ..self }
    }

    /// A text that names its data. It must be equal in all processes.
    pub(super) fn data(&self) -> Result<String> {
        let Fingerprint { contents, batches, .. } = self.source.fingerprint()?;
        Ok(format!("{contents} ({batches})"))
    }
}

impl fmt::Debug for Validation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Validation")
            .field("micro_batches", &self.micro_batches)
            .field("every", &self.every)
            .finish_non_exhaustive()
    }
}
