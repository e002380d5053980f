//! Files that were probably meant in another way.

use std::collections::HashSet;
use std::fmt;
use std::path::{Path, PathBuf};

use super::raw::{Form, left_out};
use super::{look, seems, text};
use crate::error::{Error, Result};

/// What is odd about a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Odd {
    /// It is read as plain text and seems to be JSON lines, or a list of records.
    Records,
    /// It is read as plain text and seems to be a table, such as CSV.
    Table,
    /// It is read as plain text and has carriage returns.
    CarriageReturns,
    /// It is in a folder of this form, and is not read.
    LeftOut(Form),
}

/// Files that were probably meant in another way.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Oddity {
    /// What is odd.
    pub odd: Odd,
    /// The first of the files.
    pub first: PathBuf,
    /// The number of these files.
    pub files: usize,
}

/// Looks for files of folders that are left out, and at the beginnings of text files. In a folder, records
/// and tables are odd only if no file has other text: folders of programs have some.
///
/// # Errors
/// When a file cannot be read.
pub fn odd_files(paths: &[PathBuf], form: Form) -> Result<Vec<Oddity>> {
    let left_out = left_out(paths, form)?;
    let mut all = match form {
        Form::Text => odd_text(paths)?,
        Form::Jsonl | Form::Parquet => Vec::new(),
    };
    if let [first, ..] = &left_out[..] {
        all.push(Oddity { odd: Odd::LeftOut(form), first: first.clone(), files: left_out.len() });
    }
    Ok(all)
}

fn odd_text(paths: &[PathBuf]) -> Result<Vec<Oddity>> {
    let mut found = Vec::new();
    // The given paths with text that is neither records nor a table.
    let mut usual = HashSet::new();
    let given = |path: &Path| paths.iter().position(|given| path.starts_with(given));
    for (path, _) in text::find(paths)? {
        let (file, ..) = look::open_text(&path)?;
        let start = look::start(file).map_err(Error::io("read", &path))?;
        let extension = seems::extension(&path);
        let is = [
            (Odd::Records, seems::records(extension.as_deref(), &start)),
            (Odd::Table, seems::table(extension.as_deref(), &start)),
            (Odd::CarriageReturns, start.contains(&b'\r')),
        ];
        if let [(_, false), (_, false), _] = is {
            usual.insert(given(&path));
        }
        let odd = is.into_iter().filter(|(_, is_so)| *is_so);
        found.extend(odd.map(|(odd, _)| (odd, path.clone())));
    }
    let mut all: Vec<Oddity> = Vec::new();
    for (odd, first) in found {
        if odd != Odd::CarriageReturns && usual.contains(&given(&first)) {
            continue;
        }
        match all.iter_mut().find(|known| known.odd == odd) {
            Some(known) => known.files += 1,
            None => all.push(Oddity { odd, first, files: 1 }),
        }
    }
    Ok(all)
}

impl fmt::Display for Oddity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.first.display())?;
        let (is, has, seems) = match self.files {
            1 => ("is", "has", "seems"),
            files => {
                write!(f, " and {} more", files - 1)?;
                ("are", "have", "seem")
            }
        };
        match self.odd {
            Odd::Records => write!(
                f,
                " {seems} to be JSON, and {is} read as plain text: braces, quotes and names become tokens; \
                 data.kind = \"jsonl\" reads documents out of JSON lines"
            ),
            Odd::Table => write!(
                f,
                " {seems} to be a table, and {is} read as plain text: separators become tokens; write a \
                 column as JSON lines or Parquet to train on that"
            ),
            Odd::CarriageReturns => write!(
                f,
                " {has} carriage returns at ends of lines, which become tokens like other characters: \
                 `dos2unix` removes them"
            ),
            Odd::LeftOut(Form::Text) => write!(f, " {is} left out, being no text in UTF-8"),
            Odd::LeftOut(Form::Jsonl) => write!(
                f,
                " {is} left out: of a folder, JSON lines are the files with names in .jsonl or .ndjson, or \
                 else in .json, and none in folders inside; name others too"
            ),
            Odd::LeftOut(Form::Parquet) => write!(
                f,
                " {is} left out: of a folder, Parquet is the files with names in .parquet, and none in \
                 folders inside; name others too"
            ),
        }
    }
}
