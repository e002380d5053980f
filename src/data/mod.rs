//! Where micro-batches come from.

mod loader;

pub use loader::{Feed, Loader};

use pipewright_stages::{Shape, Tensor};

use crate::error::Result;
use crate::id::MicroBatch;

/// A source of micro-batches: a pure function of position, so that resuming needs no state.
pub trait DataSource: Send + Sync + 'static {
    /// The input and the target of a micro-batch.
    ///
    /// # Errors
    /// When the data cannot be read.
    fn micro_batch(&self, step: u64, micro_batch: MicroBatch, replica: u32) -> Result<(Tensor, Tensor)>;

    /// The shapes of every input and target.
    fn shapes(&self) -> (Shape, Shape);
}
