//! Opens files by their form.

use std::path::PathBuf;
use std::sync::Arc;

use super::{Form, Piece, lines, text};
use crate::error::Result;

/// The pieces of a file, in order.
pub(crate) type Pieces = Box<dyn Iterator<Item = Result<Piece>>>;

/// Opens a file. `column` is the column of a table.
///
/// # Errors
/// When the file cannot be opened. The pieces have the errors of its contents.
pub(crate) fn open(path: PathBuf, form: Form, column: &str) -> Result<Pieces> {
    let path = Arc::from(path);
    match form {
        Form::Text => Ok(Box::new(text::Text::open(path)?)),
        Form::Jsonl => Ok(Box::new(lines::Lines::open(path)?)),
        #[cfg(feature = "parquet")]
        Form::Parquet => Ok(Box::new(super::parquet::Rows::open(path, column)?)),
        #[cfg(not(feature = "parquet"))]
        Form::Parquet => {
            let _ = (path, column);
            Err(crate::error::DataError::new(
                "this program was built without the cargo feature `parquet`: build it with `cargo build \
                 --release --features parquet`, or write the data as JSON lines",
            )
            .into())
        }
    }
}
