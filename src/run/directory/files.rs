//! Files of lines of JSON that only grow, and files that somebody removes while they are open.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::Serialize;

use crate::system::is_at;
use crate::{Error, Result, whole};

/// Makes a file again that was removed or replaced while it was `open`, with all that was written to it.
/// Returns whether that was so: then `open` is the new one, which is written at its end.
pub(super) fn restore(open: &mut File, path: &Path) -> Result<bool> {
    match is_at(open, path) {
        Ok(true) => return Ok(false),
        // If the file system does not answer, the run continues.
        Err(error) if !is_gone(&error) => return Ok(false),
        Ok(false) | Err(_) => {}
    }
    whole::make(path, |file| {
        open.rewind()?;
        io::copy(open, file).map(drop)
    })?;
    let reopened = OpenOptions::new().read(true).append(true).open(path);
    *open = reopened.map_err(crate::Error::io("open", path))?;
    Ok(true)
}

/// Whether the error says that there is nothing at a path.
pub(super) fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

/// The time, as in `2026-01-31T12:00:00Z`.
pub(super) fn now() -> String {
    humantime::format_rfc3339_seconds(SystemTime::now()).to_string()
}

/// A file of lines of JSON, open for adding lines.
#[derive(Debug)]
pub(in crate::run) struct JsonLines {
    file: File,
    path: PathBuf,
    /// The bytes of all complete lines.
    bytes: u64,
}

impl JsonLines {
    /// Opens a file to continue it. `stays` is asked for one line after the other. The first that does not
    /// stay is removed, with all behind it, and so is an incomplete last line. The lines before stay as they
    /// are, byte for byte.
    pub(in crate::run) fn open(path: PathBuf, mut stays: impl FnMut(&[u8]) -> bool) -> Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .open(&path)
            .map_err(Error::io("open", &path))?;
        let (mut lines, mut bytes) = (WholeLines::new(&file), 0);
        while let Some(line) = lines.next_line().map_err(Error::io("read", &path))? {
            if !stays(line) {
                break;
            }
            bytes += line.len() as u64;
        }
        let size = file.metadata().map_err(Error::io("read", &path))?.len();
        if bytes < size {
            file.set_len(bytes).and_then(|()| file.sync_all()).map_err(Error::io("cut", &path))?;
        }
        Ok(Self { file, path, bytes })
    }

    /// Adds a line. If that fails, the file ends with the previous line.
    pub(in crate::run) fn add(&mut self, line: &impl Serialize) -> Result<()> {
        let mut json = serde_json::to_vec(line).expect("numbers and text always serialise");
        json.push(b'\n');
        if let Err(error) = self.file.write_all(&json) {
            // Half of a line may be in the file. If it cannot be removed, it is skipped when the file is
            // read.
            let _ = self.file.set_len(self.bytes);
            return Err(Error::io("write", &self.path)(error));
        }
        self.bytes += json.len() as u64;
        Ok(())
    }

    /// Makes the file again if it was removed. Returns its path then.
    pub(in crate::run) fn restore(&mut self) -> Result<Option<PathBuf>> {
        let restored = restore(&mut self.file, &self.path)?;
        Ok(restored.then(|| self.path.clone()))
    }

    /// Waits until the disk has all lines.
    pub(in crate::run) fn sync(&self) -> Result<()> {
        self.file.sync_data().map_err(Error::io("write", &self.path))
    }
}

/// Reads a file line by line. A last line that is not whole is not read.
#[derive(Debug)]
pub struct WholeLines<R> {
    reader: BufReader<R>,
    line: Vec<u8>,
}

impl<R: Read> WholeLines<R> {
    /// Reads from the file's beginning.
    pub fn new(file: R) -> Self {
        Self { reader: BufReader::new(file), line: Vec::new() }
    }

    /// The next line with its end, if there is a whole one.
    pub fn next_line(&mut self) -> io::Result<Option<&[u8]>> {
        self.line.clear();
        self.reader.read_until(b'\n', &mut self.line)?;
        Ok(self.line.ends_with(b"\n").then_some(&self.line))
    }
}
