//! The pairs that are evaluated to find out a reference.

use std::sync::Arc;

use pipewright_stages::{Shape, Tensor};

use super::pairs::Pairs;
use super::reference::{Reference, Tell};
use crate::data::{DataSource, Fingerprint};
use crate::error::Result;
use crate::id::MicroBatch;

/// The pairs of a reference from one on, each as a micro-batch of step 0.
pub(crate) struct Question {
    pairs: Pairs,
    first: u32,
    tell: Option<Tell>,
}

impl Question {
    /// What a reference gives the pairs from `first` on.
    pub(crate) fn of(reference: &Reference, first: u32) -> Result<Self> {
        let none = Reference::none(Arc::clone(reference.documents()), reference.seq())?;
        let none = if reference.has_whole_rows() { none.with_whole_rows() } else { none };
        Ok(Self { pairs: Pairs::all(Arc::new(none)), first, tell: reference.tell() })
    }

    /// The number of a pair.
    fn pair(&self, micro_batch: MicroBatch) -> MicroBatch {
        MicroBatch(self.first + micro_batch.0)
    }
}

impl DataSource for Question {
    fn micro_batch(&self, step: u64, micro_batch: MicroBatch) -> Result<(Tensor, Tensor)> {
        let pair = self.pair(micro_batch);
        if let Some(tell) = &self.tell {
            tell(u64::from(pair.0) + 1, self.pairs.count());
        }
        self.pairs.micro_batch(step, pair)
    }

    fn shapes(&self) -> (Shape, Shape) {
        self.pairs.shapes()
    }

    fn shapes_of(&self, step: u64, micro_batch: MicroBatch) -> (Shape, Shape) {
        self.pairs.shapes_of(step, self.pair(micro_batch))
    }

    fn fingerprint(&self) -> Result<Fingerprint> {
        let all = self.pairs.fingerprint()?;
        Ok(Fingerprint { batches: format!("{} from pair {} on", all.batches, self.first), ..all })
    }

    fn describe(&self) -> String {
        self.pairs.describe()
    }
}
