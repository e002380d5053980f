//! Where micro-batches come from: text, token files, documents, labelled images, rows in memory, or your own
//! source.
//!
//! A source is a pure function of the position (step, micro-batch). So there is no iterator whose state must
//! be kept to resume a run, to split it over processes, or to prepare batches ahead.

mod course;
mod csv;
mod documents;
mod encode;
mod file;
mod fingerprint;
mod fingerprinted;
mod images;
mod loader;
mod look;
mod mixture;
mod odd;
mod order;
mod packing;
mod parts;
mod preferences;
mod range;
mod raw;
mod rows;
mod sequences;
mod source;
mod token_files;
mod windows;

pub use self::csv::Targets;
pub use course::Course;
pub use documents::Documents;
pub use encode::{Encoded, Recipe};
pub use fingerprint::{Fingerprint, Samples};
pub(crate) use fingerprinted::{Fingerprinted, Summed};
pub use images::Images;
pub use images::labelled::LabelledImages;
pub use loader::{Feed, Loader};
pub use mixture::{Mixture, MixtureSource};
pub use odd::{Odd, Oddity, odd_files};
pub use packing::{Longer, Packing, packed_apart};
pub(crate) use preferences::Question;
pub use preferences::{Pairs, Reference};
pub use range::Share;
pub use raw::{Form, LossOn};
pub use rows::{Rows, Table};
pub use sequences::Sequences;
pub use source::{DataSource, IGNORED};
pub use token_files::corpus::Corpus;
pub use token_files::tokens::Width;
pub use token_files::writer::{TokenWriter, Written};
pub use windows::Windows;

pub use crate::tokenizer::Template;
