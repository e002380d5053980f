//! Which files of a folder are text, and their bytes.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// Folders that hold what a build or a run left behind.
const SKIPPED: [&str; 2] = ["target", "runs"];

/// How much of a file is searched for the zero byte that text never has.
const SNIFFED: usize = 8000;

/// Every file's path and bytes, in order.
pub(super) fn read(paths: &[PathBuf]) -> Result<Vec<(PathBuf, Vec<u8>)>> {
    let mut files = Vec::new();
    for path in paths {
        let metadata = fs::metadata(path).map_err(|error| missing(path, &error))?;
        let before = files.len();
        if metadata.is_dir() {
            read_folder(path, &mut files)?;
        } else {
            files.push((path.clone(), fs::read(path).map_err(Error::io("read", path))?));
        }
        if files[before..].iter().all(|(_, bytes)| bytes.is_empty()) {
            return Err(Error::Data(if metadata.is_dir() {
                let skipped = "hidden and binary files, `target` and `runs` are skipped";
                format!("the folder `{}` holds no text ({skipped})", path.display())
            } else {
                format!("`{}` is empty", path.display())
            }));
        }
    }
    Ok(files)
}

fn read_folder(folder: &Path, files: &mut Vec<(PathBuf, Vec<u8>)>) -> Result<()> {
    let entries = fs::read_dir(folder).map_err(Error::io("list", folder))?;
    let mut entries = entries
        .collect::<std::io::Result<Vec<_>>>()
        .map_err(Error::io("list", folder))?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let (name, path) = (entry.file_name(), entry.path());
        if is_hidden(&name) {
            continue;
        }
        // Of the entry itself: a link to a folder could lead back up.
        let kind = entry.file_type().map_err(Error::io("read", &path))?;
        if kind.is_dir() {
            if !SKIPPED.iter().any(|skipped| name == *skipped) {
                read_folder(&path, files)?;
            }
        } else if path.is_file() {
            let bytes = fs::read(&path).map_err(Error::io("read", &path))?;
            if !is_binary(&bytes) {
                files.push((path, bytes));
            }
        }
    }
    Ok(())
}

fn is_hidden(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b".")
}

fn is_binary(bytes: &[u8]) -> bool {
    bytes.iter().take(SNIFFED).any(|&byte| byte == 0)
}

/// Why a file of data cannot be opened, with the place that was looked at.
pub(super) fn missing(path: &Path, error: &std::io::Error) -> Error {
    let mut message = format!("cannot read `{}`: {error}", path.display());
    if let (true, Ok(absolute)) = (path.is_relative(), std::path::absolute(path)) {
        message.push_str(&format!(
            "; relative paths start at the current directory, so this is `{}`",
            absolute.display()
        ));
    }
    Error::Data(message)
}
