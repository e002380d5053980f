//! The data of a run's validations.

use std::fmt;
use std::sync::Arc;

use crate::Result;
use crate::data::{DataSource, Fingerprint};

/// What a run validates on, and how often. Without more than a source it is one micro-batch, after the last
/// step.
#[derive(Clone)]
pub struct Validation {
    pub(super) source: Arc<dyn DataSource>,
    pub(super) micro_batches: u32,
    pub(super) every: u64,
}

impl Validation {
    /// On the first micro-batches of this source's step 0.
    pub fn new(source: Arc<dyn DataSource>) -> Self {
        Self {
            source,
            micro_batches: 1,
            every: 0,
        }
    }

    /// On so many micro-batches, 1 or more; 1 when not said.
    #[must_use]
    pub fn micro_batches(self, micro_batches: u32) -> Self {
        Self {
            micro_batches,
            ..self
        }
    }

    /// Every so many steps, beside once after the last step; 0, only after the last step, when not said.
    #[must_use]
    pub fn every(self, steps: u64) -> Self {
        Self { every: steps, ..self }
    }

    /// Its data, as processes compare it.
    pub(super) fn data(&self) -> Result<String> {
        let Fingerprint {
            contents, batches, ..
        } = self.source.fingerprint()?;
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
