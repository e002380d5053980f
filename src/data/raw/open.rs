//! Opens files by their form.

use std::iter;
use std::path::PathBuf;
use std::sync::Arc;

use super::{Form, Piece, lines, text};
use crate::error::Result;

/// The pieces of a file, in order. None follows an error.
pub(crate) type Pieces = Box<dyn Iterator<Item = Result<Piece>>>;

/// Opens a file. `column` is the column of a table.
///
/// # Errors
/// When the file cannot be opened. The pieces have the errors of its contents.
pub(crate) fn open(path: PathBuf, form: Form, column: &str) -> Result<Pieces> {
    let path = Arc::from(path);
    match form {
        Form::Text => {
            let mut text = text::Text::open(path)?;
            Ok(pieces(move || text.read()))
        }
        Form::Jsonl => {
            let mut lines = lines::Lines::open(path)?;
            Ok(pieces(move || lines.read()))
        }
        #[cfg(feature = "parquet")]
        Form::Parquet => {
            let mut rows = super::parquet::Rows::open(path, column)?;
            Ok(pieces(move || rows.read()))
        }
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

fn pieces(mut read: impl FnMut() -> Result<Option<Piece>> + 'static) -> Pieces {
    let mut ended = false;
    Box::new(iter::from_fn(move || {
        if ended {
            return None;
        }
        let piece = read().transpose();
        ended = !matches!(piece, Some(Ok(_)));
        piece
    }))
}
