//! Where micro-batches come from: text, token files, labelled images, or your own source.
//!
//! A source is a pure function of the position (step, micro-batch). So there is no iterator whose state must
//! be kept to resume a run, to split it over processes, or to prepare batches ahead.

mod corpus;
mod file;
mod fingerprint;
mod fingerprinted;
mod idx;
mod images;
mod labelled;
mod loader;
mod permutation;
mod range;
mod share;
mod source;
mod summed;
mod text;
mod tokens;
mod windows;

pub use corpus::Corpus;
pub(crate) use file::read_at;
pub use fingerprint::Fingerprint;
pub(crate) use fingerprinted::Fingerprinted;
pub use images::Images;
pub use labelled::LabelledImages;
pub use loader::{Feed, Loader};
pub use share::Share;
pub use source::{DataSource, IGNORED};
pub(crate) use summed::Summed;
pub use tokens::Width;
pub use windows::Windows;
