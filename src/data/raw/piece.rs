//! What is read of a file.

use std::path::Path;
use std::sync::Arc;

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
pub(crate) struct Piece {
    pub(crate) path: Arc<Path>,
    /// The line or the row, from 1.
    pub(crate) line: u64,
    pub(crate) text: String,
    /// Whether the document ends with it.
    pub(crate) ends: bool,
    /// The bytes that it has in the file.
    pub(crate) bytes: u64,
}
