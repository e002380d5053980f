//! Finds the text files of a folder and reads them.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::tokens::Tokens;
use crate::data::file::{self, Constant, Seen, wrong};
use crate::data::look::{self, Look};
use crate::error::{DataError, Error, Result};
use crate::system::read_at;

/// Folders with the results of a build or a run.
const SKIPPED: [&str; 2] = ["target", "runs"];

/// How many bytes of text are held in memory. Later files are read when their tokens are needed.
const HELD: u64 = 256 << 20;

/// How many of these files stay open. Many systems let a process open 1,024 files.
const OPEN: u32 = 256;

/// The text files that were found, how many of their bytes are in memory, and how many of the files are open.
#[derive(Default)]
struct TextFiles {
    files: Vec<(PathBuf, Tokens, u64)>,
    held: u64,
    open: u32,
}

/// The files at paths.
#[derive(Default)]
pub(in crate::data) struct FoundFiles {
    /// The text files and their lengths, in order.
    pub(in crate::data) text: Vec<(PathBuf, u64)>,
    /// The files of folders that are no text.
    pub(in crate::data) left_out: Vec<PathBuf>,
}

/// The text files at these paths and their lengths, in order.
pub(in crate::data) fn find(paths: &[PathBuf]) -> Result<Vec<(PathBuf, u64)>> {
    Ok(find_all(paths)?.text)
}

/// All files at these paths.
pub(in crate::data) fn find_all(paths: &[PathBuf]) -> Result<FoundFiles> {
    let mut found = FoundFiles::default();
    for path in paths {
        if file::metadata(path)?.is_dir() {
            let before = found.text.len();
            add_folder(&mut found, path)?;
            if found.text[before..].iter().all(|(_, bytes)| *bytes == 0) {
                return Err(Error::from(DataError::new(format!(
                    "the folder `{}` holds no text (hidden and binary files, `target` and `runs` are \
                     skipped)",
                    path.display()
                ))));
            }
        } else {
            let (_, bytes) = file::open(path)?;
            if bytes == 0 {
                return Err(wrong(path, "is empty"));
            }
            found.text.push((path.clone(), bytes));
        }
    }
    Ok(found)
}

/// Every file's path, text and length, in order.
pub(super) fn read(paths: &[PathBuf]) -> Result<Vec<(PathBuf, Tokens, u64)>> {
    let mut read = TextFiles::default();
    for (path, _) in find(paths)? {
        let (file, bytes, mark) = look::open_text(&path)?;
        read.add(path, file, mark..bytes)?;
    }
    Ok(read.files)
}

fn add_folder(found: &mut FoundFiles, folder: &Path) -> Result<()> {
    let entries = fs::read_dir(folder).map_err(Error::io("list", folder))?;
    let mut entries = entries.collect::<std::io::Result<Vec<_>>>().map_err(Error::io("list", folder))?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let (name, path) = (entry.file_name(), entry.path());
        if is_hidden(&name) {
            continue;
        }
        // The entry itself: a symbolic link to a folder is not followed, since it could lead back up.
        let kind = entry.file_type().map_err(Error::io("read", &path))?;
        if kind.is_dir() {
            if !SKIPPED.iter().any(|skipped| name == *skipped) {
                add_folder(found, &path)?;
            }
        } else if path.is_file() {
            let (file, bytes) = file::open(&path)?;
            let start = look::start(&file).map_err(Error::io("read", &path))?;
            match look::look(&start) {
                Look::Text(_) => found.text.push((path, bytes)),
                _ => found.left_out.push(path),
            }
        }
    }
    Ok(())
}

impl TextFiles {
    /// Adds a file: its text, which is at these bytes, or the open file if there is too much text for memory.
    fn add(&mut self, path: PathBuf, file: File, text: Range<u64>) -> Result<()> {
        let (start, bytes) = (text.start, text.end - text.start);
        let tokens = if self.held + bytes <= HELD {
            let mut text = vec![0; bytes as usize];
            read_at(&file, &mut text, start).map_err(Error::io("read", &path))?;
            self.held += bytes;
            Tokens::Text(text)
        } else if self.open < OPEN {
            self.open += 1;
            Tokens::TextFile(Constant::new(file).map_err(Error::io("read", &path))?, start)
        } else {
            Tokens::TextAt(path.clone(), start, Seen::of(&file).map_err(Error::io("read", &path))?)
        };
        self.files.push((path, tokens, bytes));
        Ok(())
    }
}

fn is_hidden(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b".")
}
