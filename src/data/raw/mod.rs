//! Documents as they are in files: text, a line of JSON, a cell of a table.

mod chat;
mod files;
mod jsonl;
mod lines;
mod open;
#[cfg(feature = "parquet")]
mod parquet;
mod piece;
mod text;

pub use chat::Template;
pub(super) use files::find;
pub(super) use jsonl::document;
pub(super) use open::{Pieces, open};
pub use piece::Form;
pub(super) use piece::Piece;
