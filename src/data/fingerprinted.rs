//! Sources that remember: a fingerprint that is made once, or the checksums of micro-batches.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use pipewright_stages::{Shape, Tensor};

use super::fingerprint::of_tensors;
use super::{DataSource, Fingerprint};
use crate::checksum::Checksum;
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

    fn documents(&self, step: u64, micro_batch: MicroBatch) -> Result<Option<Tensor>> {
        self.source.documents(step, micro_batch)
    }

    fn shapes(&self) -> (Shape, Shape) {
        self.source.shapes()
    }

    fn shapes_of(&self, step: u64, micro_batch: MicroBatch) -> (Shape, Shape) {
        self.source.shapes_of(step, micro_batch)
    }

    fn sequences_of(&self, step: u64) -> Vec<(String, u64)> {
        self.source.sequences_of(step)
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

/// A source that remembers the checksums of the micro-batches that it returned, so that processes can compare
/// them.
pub(crate) struct Summed {
    source: Arc<dyn DataSource>,
    sums: Mutex<BTreeMap<(u64, MicroBatch), Checksum>>,
}

impl Summed {
    pub(crate) fn new(source: Arc<dyn DataSource>) -> Self {
        Self { source, sums: Mutex::default() }
    }

    /// Takes out the checksums of these steps' micro-batches, each with its step and number. The checksums of
    /// earlier steps are forgotten.
    pub(crate) fn take(&self, steps: Range<u64>) -> Vec<((u64, u32), Checksum)> {
        let mut sums = self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        let later = sums.split_off(&(steps.end, MicroBatch(0)));
        let taken = std::mem::replace(&mut *sums, later);
        let of_steps = taken.into_iter().filter(|((of, _), _)| steps.contains(of));
        of_steps.map(|((of, at), sum)| ((of, at.0), sum)).collect()
    }
}

impl DataSource for Summed {
    fn micro_batch(&self, step: u64, micro_batch: MicroBatch) -> Result<(Tensor, Tensor)> {
        let (input, target) = self.source.micro_batch(step, micro_batch)?;
        let starts = self.source.documents(step, micro_batch)?;
        let sum = of_tensors([&input, &target].into_iter().chain(&starts));
        let mut sums = self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        sums.insert((step, micro_batch), sum);
        Ok((input, target))
    }

    fn documents(&self, step: u64, micro_batch: MicroBatch) -> Result<Option<Tensor>> {
        self.source.documents(step, micro_batch)
    }

    fn shapes(&self) -> (Shape, Shape) {
        self.source.shapes()
    }

    fn shapes_of(&self, step: u64, micro_batch: MicroBatch) -> (Shape, Shape) {
        self.source.shapes_of(step, micro_batch)
    }

    fn sequences_of(&self, step: u64) -> Vec<(String, u64)> {
        self.source.sequences_of(step)
    }

    fn fingerprint(&self) -> Result<Fingerprint> {
        self.source.fingerprint()
    }

    fn describe(&self) -> String {
        self.source.describe()
    }

    fn is_endless(&self) -> bool {
        self.source.is_endless()
    }
}
