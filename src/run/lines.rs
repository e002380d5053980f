//! The whole lines of a file that may still be written.

use std::io::{self, BufRead, BufReader, Read};

/// Reads a file line by line. A last line that is not whole is not read.
#[derive(Debug)]
pub(crate) struct Lines<R> {
    reader: BufReader<R>,
    line: Vec<u8>,
}

impl<R: Read> Lines<R> {
    pub(crate) fn new(file: R) -> Self {
        Self {
            reader: BufReader::new(file),
            line: Vec::new(),
        }
    }

    /// The next line with its end, if there is a whole one.
    pub(crate) fn next(&mut self) -> io::Result<Option<&[u8]>> {
        self.line.clear();
        self.reader.read_until(b'\n', &mut self.line)?;
        Ok(self.line.ends_with(b"\n").then_some(&self.line))
    }
}
