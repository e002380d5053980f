//! Where micro-batches come from: text, token files, documents, labelled images, rows in memory, or your own
//! source.
//!
//! A source is a pure function of the position (step, micro-batch). So there is no iterator whose state must
//! be kept to resume a run, to split it over processes, or to prepare batches ahead.

mod augment;
mod cache;
mod cifar;
mod corpus;
mod course;
mod csv;
mod described;
mod documents;
mod encode;
mod file;
mod fingerprint;
mod fingerprinted;
mod idx;
mod images;
mod index;
mod labelled;
mod loader;
mod look;
mod loss_on;
mod odd;
mod order;
mod partial;
mod parts;
mod permutation;
mod range;
mod raw;
mod rows;
mod seems;
mod sequences;
mod share;
mod source;
mod summed;
mod table;
mod text;
mod tokens;
mod windows;
mod writer;

pub use self::csv::Targets;
pub use corpus::Corpus;
pub use course::Course;
pub use documents::Documents;
pub use encode::{Encoded, Recipe};
pub(crate) use file::read_at;
pub use fingerprint::{Fingerprint, Samples};
pub(crate) use fingerprinted::Fingerprinted;
pub use images::Images;
pub use labelled::LabelledImages;
pub use loader::{Feed, Loader};
pub use loss_on::LossOn;
pub use odd::{Odd, Oddity, odd_files};
pub use raw::Form;
pub use rows::Rows;
pub use sequences::Sequences;
pub use share::Share;
pub use source::{DataSource, IGNORED};
pub(crate) use summed::Summed;
pub use table::Table;
pub use tokens::Width;
pub use windows::Windows;
pub use writer::{TokenWriter, Written};

pub use crate::tokenizer::Template;
