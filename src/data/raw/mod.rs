//! Documents as they are in files: text, a line of JSON, a cell of a table.

mod chat;
mod files;
mod jsonl;
mod lines;
mod text;

pub use chat::Template;
pub(super) use files::find;
pub(super) use jsonl::document;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::Result;

/// The form of the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Text. A file is a document.
    Text,
    /// JSON lines. A line is a document.
    Jsonl,
    /// Parquet. A row is a document. Needs the cargo feature `parquet`.
    Parquet,
}

/// A document, or a part of one, as it is in a file.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) path: Arc<Path>,
    /// The line or the row, from 1.
    pub(super) line: u64,
    pub(super) text: String,
    /// Whether the document ends with it.
    pub(super) ends: bool,
    /// The bytes that it has in the file.
    pub(super) bytes: u64,
}

/// The pieces of a file, in order.
pub(super) type Pieces = Box<dyn Iterator<Item = Result<Piece>>>;

/// Opens a file. `field` is the column of a table.
///
/// # Errors
/// When the file cannot be opened. The pieces have the errors of its contents.
pub(super) fn open(path: PathBuf, form: Form, field: &str) -> Result<Pieces> {
    let path = Arc::from(path);
    match form {
        Form::Text => Ok(Box::new(text::Text::open(path)?)),
        Form::Jsonl => Ok(Box::new(lines::Lines::open(path)?)),
        Form::Parquet => {
            let _ = field;
            Err(crate::error::DataError::NoParquet.into())
        }
    }
}
