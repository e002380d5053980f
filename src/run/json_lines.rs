//! A file of lines of JSON that only grows.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::PathBuf;

use serde::Serialize;

use super::files::restore;
use crate::{Error, Result};

/// A file of lines of JSON, open for adding lines.
#[derive(Debug)]
pub(super) struct JsonLines {
    file: File,
    path: PathBuf,
    /// The bytes of all complete lines.
    bytes: u64,
}

impl JsonLines {
    /// Opens a file to continue it. `stays` is asked for one line after the other. The first that does not
    /// stay is removed, with all behind it, and so is an incomplete last line. The lines before stay as they
    /// are, byte for byte.
    pub(super) fn open(path: PathBuf, mut stays: impl FnMut(&[u8]) -> bool) -> Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .open(&path)
            .map_err(Error::io("open", &path))?;
        let (mut lines, mut bytes) = (WholeLines::new(&file), 0);
        while let Some(line) = lines.next().map_err(Error::io("read", &path))? {
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
    pub(super) fn add(&mut self, line: &impl Serialize) -> Result<()> {
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
    pub(super) fn restore(&mut self) -> Result<Option<PathBuf>> {
        let restored = restore(&mut self.file, &self.path)?;
        Ok(restored.then(|| self.path.clone()))
    }

    /// Waits until the disk has all lines.
    pub(super) fn sync(&self) -> Result<()> {
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
    pub fn next(&mut self) -> io::Result<Option<&[u8]>> {
        self.line.clear();
        self.reader.read_until(b'\n', &mut self.line)?;
        Ok(self.line.ends_with(b"\n").then_some(&self.line))
    }
}
