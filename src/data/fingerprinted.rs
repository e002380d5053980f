//! A source whose fingerprint is made once.

use std::sync::{Arc, OnceLock};

use pipewright_stages::{Shape, Tensor};

use super::{DataSource, Fingerprint};
use crate::error::Result;
use crate::id::MicroBatch;

/// A source that is asked for its fingerprint once: this may mean reading all of its data.
pub(crate) struct Fingerprinted {
    source: Arc<dyn DataSource>,
    fingerprint: OnceLock<Fingerprint>,
}

impl Fingerprinted {
    pub(crate) fn new(source: Arc<dyn DataSource>) -> Self {
        Self { source, fingerprint: OnceLock::new() }
    }
}

impl DataSource for Fingerprinted {
    fn micro_batch(&self, step: u64, micro_batch: MicroBatch) -> Result<(Tensor, Tensor)> {
        self.source.micro_batch(step, micro_batch)
    }

    fn shapes(&self) -> (Shape, Shape) {
        self.source.shapes()
    }

    fn fingerprint(&self) -> Result<Fingerprint> {
        if let Some(known) = self.fingerprint.get() {
            return Ok(known.clone());
        }
        let made = self.source.fingerprint()?;
        Ok(self.fingerprint.get_or_init(|| made).clone())
    }

    fn describe(&self) -> String {
        self.source.describe()
    }

    fn is_endless(&self) -> bool {
        self.source.is_endless()
    }
}
