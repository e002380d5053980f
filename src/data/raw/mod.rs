//! Documents as they are in files: text, a line of JSON, a cell of a table.

mod files;
mod jsonl;
mod lines;
mod open;
#[cfg(feature = "parquet")]
mod parquet;
mod piece;
mod text;

pub(super) use files::find;
pub(super) use jsonl::{Document, Message, document};
pub(super) use open::{Pieces, open};
pub use piece::Form;
pub(super) use piece::Piece;
