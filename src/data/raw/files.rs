//! The files of a form at paths.

use std::path::{Path, PathBuf};

use super::super::file::{self, unreadable};
use super::super::text;
use super::Form;
use crate::error::{DataError, Error, FileProblem, FolderProblem, Result};

/// The files at these paths and their lengths, in order. Of a folder of text, all that
/// [`Corpus::text`](crate::data::Corpus::text) reads; of another one, the files whose names end in the form's
/// extension, sorted by name.
///
/// # Errors
/// When a path is missing or empty, or when a folder has no such file.
pub(crate) fn find(paths: &[PathBuf], form: Form) -> Result<Vec<(PathBuf, u64)>> {
    let extension = match form {
        Form::Text => return text::find(paths),
        Form::Jsonl => "jsonl",
        Form::Parquet => "parquet",
    };
    let mut found = Vec::new();
    for path in paths {
        let files = match file::metadata(path)?.is_dir() {
            true => in_folder(path, extension)?,
            false => vec![path.clone()],
        };
        for path in files {
            let (_, bytes) = file::open(&path)?;
            if bytes == 0 {
                return Err(file::wrong(&path, FileProblem::Empty));
            }
            found.push((path, bytes));
        }
    }
    Ok(found)
}

fn in_folder(folder: &Path, extension: &'static str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(unreadable(folder))? {
        let path = entry.map_err(Error::io("list", folder))?.path();
        if path.is_file() && path.extension().is_some_and(|has| has == extension) {
            found.push(path);
        }
    }
    found.sort();
    if found.is_empty() {
        let (path, problem) = (folder.to_owned(), FolderProblem::NoFiles(extension));
        return Err(DataError::Folder { path, problem }.into());
    }
    Ok(found)
}
