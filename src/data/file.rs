//! Regular files of data, and reading at an offset in them.

use std::borrow::Cow;
use std::fmt::Display;
use std::fs::{self, File, FileType, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::SystemTime;

use crate::checksum::{Checksum, ChecksumBuilder};
use crate::error::{DataError, Error, Result};
use crate::system::{self, kind_name, read_at};

/// How many bytes are read at a time when a whole file is read.
const BLOCK: usize = 1 << 20;

/// The error for a problem with this file.
pub(super) fn wrong(path: &Path, problem: impl Display) -> Error {
    DataError::new(format!("`{}` {problem}", path.display())).into()
}

/// The error for a file or folder that cannot be opened.
pub(super) fn unreadable(path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| DataError::unreadable(&path, source).into()
}

/// The system's metadata of a file or folder.
pub(super) fn metadata(path: &Path) -> Result<Metadata> {
    fs::metadata(path).map_err(unreadable(path))
}

/// Opens a regular file and returns its length. Others are refused before they are opened: opening a pipe
/// waits until somebody writes into it, and a device may never end.
pub(super) fn open(path: &Path) -> Result<(File, u64)> {
    let metadata = metadata(path)?;
    if !metadata.is_file() {
        return Err(wrong(path, problem(metadata.file_type())));
    }
    let file = File::open(path).map_err(unreadable(path))?;
    Ok((file, metadata.len()))
}

/// What is in a folder, sorted by name.
pub(super) fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).map_err(unreadable(folder))?;
    let paths: io::Result<Vec<_>> = entries.map(|entry| Ok(entry?.path())).collect();
    let mut paths = paths.map_err(Error::io("list", folder))?;
    paths.sort();
    Ok(paths)
}

/// The name of a file or folder.
pub(super) fn name(path: &Path) -> Cow<'_, str> {
    path.file_name().unwrap_or_default().to_string_lossy()
}

/// A file that has to stay as it is while it is used.
#[derive(Debug)]
pub(super) struct Constant {
    file: File,
    seen: Seen,
}

impl Constant {
    /// The file as it is now.
    pub(super) fn new(file: File) -> io::Result<Self> {
        let seen = Seen::of(&file)?;
        Ok(Self { file, seen })
    }

    /// How it was seen when it was opened.
    pub(super) fn seen(&self) -> &Seen {
        &self.seen
    }

    /// Fills `bytes` from `offset` on.
    ///
    /// # Errors
    /// As [`Seen::read_at`].
    pub(super) fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.seen.read_at(&self.file, bytes, offset)
    }
}

/// A file as it was seen: its length, when it was last written, and its contents once they have been read.
#[derive(Debug)]
pub(super) struct Seen {
    bytes: u64,
    /// Some file systems have no times.
    written: Mutex<Option<SystemTime>>,
    /// From which byte on, and the checksum of the bytes from there to the end.
    contents: OnceLock<(u64, Checksum)>,
}

impl Seen {
    pub(super) fn of(file: &File) -> io::Result<Self> {
        let metadata = file.metadata()?;
        Ok(Self {
            bytes: metadata.len(),
            written: Mutex::new(metadata.modified().ok()),
            contents: OnceLock::new(),
        })
    }

    /// Remembers the checksum of the bytes from `start` to the end.
    pub(super) fn remember(&self, start: u64, contents: Checksum) {
        let _ = self.contents.set((start, contents));
    }

    /// Fills `bytes` from `offset` on.
    ///
    /// # Errors
    /// Also when the file has been written since it was seen. If its contents are known, it is then read once
    /// more, and is fine if they are the same: it was only touched, or written again with the same bytes.
    pub(super) fn read_at(&self, file: &File, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        loop {
            read_at(file, bytes, offset)?;
            // What was read before the file was found to be as it was may be of the time between.
            if self.is_untouched(file)? {
                return Ok(());
            }
        }
    }

    /// Whether the file has not been written since it was last found to be as it was. Fails if it has other
    /// contents now.
    fn is_untouched(&self, file: &File) -> io::Result<bool> {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let metadata = file.metadata()?;
        let now = metadata.modified().ok();
        let is_as_long = metadata.len() == self.bytes;
        if is_as_long && *written == now {
            return Ok(true);
        }
        if is_as_long && self.has_contents_of(file)? {
            *written = now;
            return Ok(false);
        }
        Err(io::Error::other(
            "it was written while it was in use: a run needs the same data from beginning to end",
        ))
    }

    fn has_contents_of(&self, file: &File) -> io::Result<bool> {
        let Some((start, contents)) = self.contents.get() else {
            return Ok(false);
        };
        let (mut at, mut block, mut checksum) = (*start, vec![0; BLOCK], ChecksumBuilder::new());
        while at < self.bytes {
            let block = &mut block[..(BLOCK as u64).min(self.bytes - at) as usize];
            read_at(file, block, at)?;
            checksum.add(block);
            at += block.len() as u64;
        }
        Ok(checksum.checksum() == *contents)
    }
}

/// Adds the contents of a file to a checksum.
pub(super) fn add_to(checksum: &mut ChecksumBuilder, path: &Path) -> Result<()> {
    let (file, _) = open(path)?;
    checksum.add_all(file).map_err(Error::io("read", path))
}

/// Whether an open file is still at its path.
pub(super) fn is_there(file: &File, path: &Path) -> bool {
    system::is_at(file, path).unwrap_or(false)
}

/// Why something that is not a regular file cannot be used.
fn problem(kind: FileType) -> String {
    if kind.is_dir() {
        return "is not a file; name a token file".to_owned();
    }
    format!("is a {}, not a regular file; write what it gives into a file first", kind_name(kind))
}
