//! The lines of a file.

use std::fmt::Display;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;

use super::super::file::wrong;
use super::super::look;
use super::Piece;
use crate::error::{Error, Result};

/// The longest line: a file without line breaks is not read into memory.
const LONGEST: u64 = 1 << 28;

/// The lines of a file. Lines without a character are left out.
pub(super) struct Lines {
    path: Arc<Path>,
    file: BufReader<Box<dyn Read>>,
    line: u64,
}

impl Lines {
    pub(super) fn open(path: Arc<Path>) -> Result<Self> {
        let file = look::open_packed_text(&path)?;
        Ok(Self { path, file: BufReader::with_capacity(1 << 18, file), line: 0 })
    }

    /// The next line.
    pub(super) fn read(&mut self) -> Result<Option<Piece>> {
        loop {
            let mut bytes = Vec::new();
            let read = (&mut self.file).take(LONGEST + 1).read_until(b'\n', &mut bytes);
            if read.map_err(Error::io("read", &*self.path))? == 0 {
                return Ok(None);
            }
            self.line += 1;
            if bytes.len() as u64 > LONGEST {
                return Err(self.refuse(format!(
                    "has more than {LONGEST} bytes: in a file of JSON lines each line is one document"
                )));
            }
            if bytes.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            let count = bytes.len() as u64;
            // A line ends before its break, as errors tell it.
            bytes.truncate(bytes.trim_ascii_end().len());
            let text = String::from_utf8(bytes)
                .map_err(|_| self.refuse("is not UTF-8: convert the file, as with iconv"))?;
            return Ok(Some(Piece {
                path: Arc::clone(&self.path),
                line: self.line,
                text,
                ends: true,
                bytes: count,
            }));
        }
    }

    fn refuse(&self, problem: impl Display) -> Error {
        wrong(&self.path, format!("line {} {problem}", self.line))
    }
}
