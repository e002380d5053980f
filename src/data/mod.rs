//! Where micro-batches come from: text, token files, labelled images, or a source of the user's own.
//!
//! A source is a pure function of position (step, micro-batch). Resuming a run, splitting it over processes
//! and preparing batches ahead of time need no state of an iterator.

mod corpus;
mod idx;
mod images;
mod labelled;
mod loader;
mod permutation;
mod share;
mod text;
mod windows;

pub use corpus::{Corpus, Width};
pub use images::Images;
pub use labelled::LabelledImages;
pub use loader::{Feed, Loader};
pub use share::Share;
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
}
