//! The pairs that are evaluated to find out a reference.

use std::sync::Arc;

use pipewright_stages::{Shape, Tensor};

use super::pairs::Pairs;
use super::reference::{Reference, Tell};
use crate::data::{DataSource, Fingerprint};
use crate::error::Result;
use crate::id::MicroBatch;

/// All pairs of a reference, each as a micro-batch of step 0.
pub(crate) struct Question {
    pairs: Pairs,
    tell: Option<Tell>,
}

impl Question {
    /// The question that a reference answers.
    pub(crate) fn of(reference: &Reference) -> Result<Self> {
        let none = Reference::none(Arc::clone(reference.documents()), reference.seq())?;
        let none = if reference.has_whole_rows() { none.with_whole_rows() } else { none };
        Ok(Self { pairs: Pairs::all(Arc::new(none)), tell: reference.tell() })
    }
}

impl DataSource for Question {
    fn micro_batch(&self, step: u64, micro_batch: MicroBatch) -> Result<(Tensor, Tensor)> {
        if let Some(tell) = &self.tell {
            tell(u64::from(micro_batch.0) + 1, self.pairs.count());
        }
        self.pairs.micro_batch(step, micro_batch)
    }

    fn shapes(&self) -> (Shape, Shape) {
        self.pairs.shapes()
    }

    fn shapes_of(&self, step: u64, micro_batch: MicroBatch) -> (Shape, Shape) {
        self.pairs.shapes_of(step, micro_batch)
    }

    fn fingerprint(&self) -> Result<Fingerprint> {
        self.pairs.fingerprint()
    }

    fn describe(&self) -> String {
        self.pairs.describe()
    }
}
