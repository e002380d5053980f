//! Documents as they are in files: text, a line of JSON, a cell of a table.

mod document;
mod files;
mod form;
mod jsonl;
mod kind;
mod lines;
mod message;
mod open;
mod pair;
#[cfg(feature = "parquet")]
mod parquet;
mod piece;
mod text;

pub(super) use document::{Document, Rich};
pub(super) use files::{find, left_out};
pub(super) use jsonl::{answers, document};
pub use message::LossOn;
pub(super) use message::Message;
pub(super) use open::{Pieces, open};
pub(super) use pair::CHOSEN;
pub use piece::Form;
pub(super) use piece::Piece;
