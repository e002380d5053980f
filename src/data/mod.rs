//! Where micro-batches come from: text, token files, labelled images, or your own source.
//!
//! A source is a pure function of the position (step, micro-batch). So there is no iterator whose state must
//! be kept to resume a run, to split it over processes, or to prepare batches ahead.

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
mod text;
mod tokens;
mod windows;

pub use corpus::Corpus;
pub use fingerprint::Fingerprint;
pub use images::Images;
pub use labelled::LabelledImages;
pub use loader::{Feed, Loader};
pub use share::Share;
pub use tokens::Width;
pub use windows::Windows;

use pipewright_stages::{Shape, Tensor};

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

    /// The fingerprint of the data: it differs for other data. The processes of a run compare it, and a
    /// checkpoint keeps it.
    ///
    /// The sources of this module read all of their data for it. The default uses only micro-batch 0 of step
    /// 0.
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

    /// Whether there is data for every step, even after the last step of a training.
    ///
    /// Only then are micro-batches prepared a step ahead, since nobody knows which step is the last.
    /// Otherwise the micro-batches of a step are read when that step begins.
    fn is_endless(&self) -> bool {
        false
    }
}
