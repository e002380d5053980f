//! Text that was probably meant in another way.

use std::fmt;
use std::path::PathBuf;

use super::{look, seems, text};
use crate::error::{Error, Result};

/// What is odd about a file that is read as plain text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Odd {
    /// It seems to be JSON lines, or a list of records.
    Records,
    /// It seems to be a table, such as CSV.
    Table,
    /// It has carriage returns.
    CarriageReturns,
}

/// Files that are read as plain text, and were probably meant in another way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Oddity {
    /// What is odd.
    pub odd: Odd,
    /// The first of the files.
    pub first: PathBuf,
    /// The number of these files.
    pub files: usize,
}

/// Looks at the beginnings of text files. Of a folder's files, only carriage returns are odd.
///
/// # Errors
/// When a file cannot be read.
pub fn odd_text(paths: &[PathBuf]) -> Result<Vec<Oddity>> {
    let mut all: Vec<Oddity> = Vec::new();
    for (path, _) in text::find(paths)? {
        let (file, ..) = look::open_text(&path)?;
        let start = look::start(file).map_err(Error::io("read", &path))?;
        let (extension, is_named) = (seems::extension(&path), paths.contains(&path));
        let found = [
            (
                Odd::Records,
                is_named && seems::records(extension.as_deref(), &start),
            ),
            (Odd::Table, is_named && seems::table(extension.as_deref(), &start)),
            (Odd::CarriageReturns, start.contains(&b'\r')),
        ];
        for (odd, _) in found.into_iter().filter(|(_, is_so)| *is_so) {
            match all.iter_mut().find(|known| known.odd == odd) {
                Some(known) => known.files += 1,
                None => all.push(Oddity {
                    odd,
                    first: path.clone(),
                    files: 1,
                }),
            }
        }
    }
    Ok(all)
}

impl fmt::Display for Oddity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.first.display())?;
        if self.files > 1 {
            write!(f, " and {} more", self.files - 1)?;
        }
        f.write_str(match self.odd {
            Odd::Records => {
                " seems to be JSON, and is read as plain text: its braces, quotes and names become tokens; \
                 data.kind = \"jsonl\" reads documents out of JSON lines"
            }
            Odd::Table => {
                " seems to be a table, and is read as plain text: its separators become tokens; write a \
                 column as JSON lines or Parquet to train on that"
            }
            Odd::CarriageReturns => {
                " has carriage returns at ends of lines, which become tokens like other characters: \
                 `dos2unix` removes them"
            }
        })
    }
}
