//! The files of a form at paths.

use std::path::{Path, PathBuf};

use super::super::file;
use super::Form;
use crate::data::look;
use crate::data::token_files::text;
use crate::error::{DataError, Result};

/// The files at these paths and their lengths, in order. Of a folder of text, all that
/// [`Corpus::text`](crate::data::Corpus::text) reads; of another one, the files whose names end as the form's
/// do, sorted by name: `.jsonl` and `.ndjson`, or else `.json`, also packed as `.gz`; `.parquet`.
///
/// # Errors
/// When a path is missing or empty, or when a folder has no such file.
pub(crate) fn find(paths: &[PathBuf], form: Form) -> Result<Vec<(PathBuf, u64)>> {
    let extensions: &[&[&str]] = match form {
        Form::Text => return text::find(paths),
        // A data set in JSON lines often has descriptions of itself in `.json` beside it.
        Form::Jsonl => &[&["jsonl", "ndjson"], &["json"]],
        Form::Parquet => &[&["parquet"]],
    };
    let mut found = Vec::new();
    for path in paths {
        let files = match file::metadata(path)?.is_dir() {
            true => in_folder(path, extensions)?,
            false => vec![path.clone()],
        };
        for path in files {
            let (_, bytes) = file::open(&path)?;
            if bytes == 0 {
                return Err(file::wrong(&path, "is empty"));
            }
            found.push((path, bytes));
        }
    }
    Ok(found)
}

/// What is in the folders among these paths and is not read, in order. Nobody looks for hidden files and for
/// descriptions (`.md`, or no extension).
///
/// # Errors
/// As [`find`].
pub(crate) fn left_out(paths: &[PathBuf], form: Form) -> Result<Vec<PathBuf>> {
    if form == Form::Text {
        return Ok(text::find_all(paths)?.left_out);
    }
    let read = find(paths, form)?;
    let mut left_out = Vec::new();
    for folder in paths.iter().filter(|path| path.is_dir()) {
        let is_left_out = |path: &PathBuf| {
            let is_looked_for = path.is_dir() || look::extension(path).is_some_and(|has| has != "md");
            let is_hidden = file::name(path).starts_with('.');
            is_looked_for && !is_hidden && read.iter().all(|(other, _)| other != path)
        };
        left_out.extend(file::entries(folder)?.into_iter().filter(is_left_out));
    }
    left_out.sort();
    Ok(left_out)
}

/// The folder's files with extensions of one group: the first of these groups for which it has any file.
fn in_folder(folder: &Path, extensions: &[&'static [&'static str]]) -> Result<Vec<PathBuf>> {
    let files = file::entries(folder)?;
    let of = |group: &&[&str]| -> Vec<PathBuf> {
        let ends = |path: &&PathBuf| {
            path.is_file() && look::extension(path).is_some_and(|has| group.contains(&has.as_str()))
        };
        files.iter().filter(ends).cloned().collect()
    };
    let found = extensions.iter().map(of).find(|found| !found.is_empty());
    found.ok_or_else(|| {
        let (folder, ending) = (folder.display(), extensions[0][0]);
        DataError::new(format!("the folder `{folder}` holds no file whose name ends in `.{ending}`")).into()
    })
}
