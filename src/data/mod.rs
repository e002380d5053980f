//! Where micro-batches come from: text, token files, labelled images, or a source of the user's own.
//!
//! A source is a pure function of position (step, micro-batch). Resuming a run, splitting it over processes
//! and preparing batches ahead of time need no state of an iterator.

mod corpus;
mod file;
mod fingerprint;
mod idx;
mod images;
mod labelled;
mod loader;
mod permutation;
mod range;
mod share;
mod summed;
mod text;
mod tokens;
mod windows;

pub use corpus::Corpus;
pub use fingerprint::Fingerprint;
pub use images::Images;
pub use labelled::LabelledImages;
pub use loader::{Feed, Loader};
pub use share::Share;
pub(crate) use summed::Summed;
pub use tokens::Width;
pub use windows::Windows;

use pipewright_stages::{Shape, Tensor};

use crate::error::Result;
use crate::id::MicroBatch;

/// The target of a row that no loss counts: the filling of a last micro-batch that the data does not fill.
pub const IGNORED: u32 = u32::MAX;

/// A source of micro-batches: a pure function of position, so that resuming needs no state.
pub trait DataSource: Send + Sync + 'static {
    /// The input and the target of a micro-batch. Its number is that within the whole batch of a step, from 0:
    /// where several replicas share a batch, each asks for its own numbers.
    ///
    /// # Errors
    /// When the data cannot be read.
    fn micro_batch(&self, step: u64, micro_batch: MicroBatch) -> Result<(Tensor, Tensor)>;

    /// The shapes of every input and target.
    fn shapes(&self) -> (Shape, Shape);

    /// What tells this data from other data. Processes of a run compare it, and a checkpoint keeps it.
    ///
    /// The sources of this module look at all of their data. A source that does not say more is known by
    /// micro-batch 0 of step 0. Several processes also compare each batch of it after the step that took it.
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
    /// Then micro-batches are always prepared a step ahead. Otherwise they are where it is known that there
    /// will be another step, as in a `run::Run`; after the last one that is known, the source is asked for
    /// the micro-batches of a step when that step begins.
    fn is_endless(&self) -> bool {
        false
    }
}
