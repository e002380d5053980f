//! What a source of micro-batches has to give.

use pipewright_stages::{Shape, Tensor};

use super::Fingerprint;
use crate::error::Result;
use crate::id::MicroBatch;

/// The target of a row that no loss counts. It fills the last micro-batch if there is not enough data.
pub const IGNORED: u32 = u32::MAX;

/// A source of micro-batches: a pure function of the position, so that resuming needs no state.
pub trait DataSource: Send + Sync + 'static {
    /// The input and the target of a micro-batch. Micro-batches are numbered from 0 over the whole batch of a
    /// step. If several replicas share a batch, each asks for its own numbers.
    ///
    /// # Errors
    /// When the data cannot be read.
    fn micro_batch(&self, step: u64, micro_batch: MicroBatch) -> Result<(Tensor, Tensor)>;

    /// The shapes of every input and target.
    fn shapes(&self) -> (Shape, Shape);

    /// What tells this data from other data. Processes of a run compare it, and a checkpoint keeps it.
    ///
    /// The sources of this module look at all of their data. A source that does not say more is known by
    /// micro-batch 0 of step 0. Several processes also compare each of its batches, after the step that took it.
    ///
    /// # Errors
    /// When the data cannot be read.
    fn fingerprint(&self) -> Result<Fingerprint> {
        let (input, target) = self.micro_batch(0, MicroBatch(0))?;
        Ok(Fingerprint::of_sample(
            std::any::type_name::<Self>(),
            &input,
            &target,
        ))
    }

    /// Whether there is data for every step, also for those after the last step of a training.
    ///
    /// Then micro-batches are always prepared a step ahead. Otherwise they are prepared ahead only where it is
    /// known that another step follows, as in a [`Run`](crate::run::Run). For the last known step, the source is
    /// asked when that step begins.
    fn is_endless(&self) -> bool {
        false
    }
}
