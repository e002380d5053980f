//! The form of files, as their first bytes show it.

use std::path::{Path, PathBuf};

use super::{Form, find};
use crate::data::token_files::text;
use crate::data::{file, look};
use crate::error::{DataError, Result};

impl Form {
    /// The form of these files, by their names and first bytes. A folder has the form of its files if they
    /// all have the same, and is text otherwise.
    ///
    /// # Errors
    /// When a file cannot be read, or when the paths have different forms.
    pub fn of(paths: &[PathBuf]) -> Result<Self> {
        let mut known: Option<(&PathBuf, Self)> = None;
        for path in paths {
            let form = match file::metadata(path)?.is_dir() {
                true => of_folder(path)?,
                false => of_file(path)?,
            };
            match known {
                Some((first, expected)) if expected != form => {
                    return Err(DataError::new(format!(
                        "`{}` is {} and `{}` is {}: name files of one form at a time",
                        first.display(),
                        expected.name(),
                        path.display(),
                        form.name()
                    ))
                    .into());
                }
                _ => known = known.or(Some((path, form))),
            }
        }
        Ok(known.map_or(Self::Text, |(_, form)| form))
    }

    /// Its name in messages.
    fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Jsonl => "JSON lines",
            Self::Parquet => "Parquet",
        }
    }
}

fn of_file(path: &Path) -> Result<Form> {
    let start = look::unpacked_start(path)?;
    Ok(match look::records(look::extension(path).as_deref(), &start) {
        _ if start.starts_with(look::PARQUET) => Form::Parquet,
        true => Form::Jsonl,
        false => Form::Text,
    })
}

fn of_folder(folder: &Path) -> Result<Form> {
    let paths = [folder.to_owned()];
    let is_there = |form| find(&paths, form).is_ok();
    match text::find(&paths) {
        Ok(files) => {
            let forms = files.iter().map(|(path, _)| of_file(path));
            let forms: Vec<_> = forms.collect::<Result<_>>()?;
            Ok(match forms.iter().all(|form| *form == Form::Jsonl) {
                true => Form::Jsonl,
                false => Form::Text,
            })
        }
        // Packed or binary files are no text of a folder.
        Err(_) if is_there(Form::Jsonl) => Ok(Form::Jsonl),
        Err(_) if is_there(Form::Parquet) => Ok(Form::Parquet),
        Err(error) => Err(error),
    }
}
