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
mod source;
mod text;
mod tokens;
mod windows;

pub use corpus::Corpus;
pub use fingerprint::Fingerprint;
pub use images::Images;
pub use labelled::LabelledImages;
pub use loader::{Feed, Loader};
pub use share::Share;
pub use source::{DataSource, IGNORED};
pub use tokens::Width;
pub use windows::Windows;
