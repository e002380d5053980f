//! Text in pieces.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use super::super::file::wrong;
use super::super::look;
use super::Piece;
use crate::error::{Error, Result};

/// How many bytes are read at a time, so about the length of a piece.
const BLOCK: u64 = 1 << 20;

/// The pieces of a file of text.
pub(super) struct Text {
    path: Arc<Path>,
    file: File,
    /// What was read and is not yet in a piece.
    rest: Vec<u8>,
    /// Where the rest begins in the file.
    at: u64,
    line: u64,
    ended: bool,
}

impl Text {
    pub(super) fn open(path: Arc<Path>) -> Result<Self> {
        let (file, _, mark) = look::open_text(&path)?;
        Ok(Self { path, file, rest: Vec::new(), at: mark, line: 1, ended: false })
    }

    /// The next piece: reads on until the rest has a place to cut, or the file ends.
    pub(super) fn read(&mut self) -> Result<Option<Piece>> {
        if self.ended {
            return Ok(None);
        }
        loop {
            let block = (&mut self.file).take(BLOCK).read_to_end(&mut self.rest);
            self.ended = block.map_err(Error::io("read", &*self.path))? == 0;
            let text = self.valid()?;
            let cut = match self.ended {
                true => Some(text.len()),
                false => cut(text),
            };
            let Some(cut) = cut else {
                continue;
            };
            let text = text[..cut].to_owned();
            self.rest.drain(..cut);
            self.at += cut as u64;
            let line = self.line;
            self.line += text.matches('\n').count() as u64;
            return Ok(Some(Piece {
                path: Arc::clone(&self.path),
                line,
                bytes: cut as u64,
                text,
                ends: self.ended,
            }));
        }
    }

    /// The text in the rest. The last character may be cut by the end of a block, but not by the end of the
    /// file.
    fn valid(&self) -> Result<&str> {
        let error = match std::str::from_utf8(&self.rest) {
            Ok(text) => return Ok(text),
            Err(error) => error,
        };
        let end = error.valid_up_to();
        if error.error_len().is_some() || self.ended {
            let byte = self.at + end as u64;
            return Err(wrong(
                &self.path,
                format!(
                    "is not UTF-8 at byte {byte}: convert it, as with iconv, or train on its bytes without a \
                     tokenizer"
                ),
            ));
        }
        Ok(std::str::from_utf8(&self.rest[..end]).expect("checked: valid up to there"))
    }
}

/// The last place where a text may be cut, so that its parts hardly ever share a token: after a single line
/// break between two characters that are not white space.
fn cut(text: &str) -> Option<usize> {
    let breaks = text.rmatch_indices('\n').map(|(at, _)| at);
    let is_word = |letter: Option<char>| letter.is_some_and(|letter| !letter.is_whitespace());
    let mut single = breaks
        .filter(|&at| is_word(text[..at].chars().next_back()) && is_word(text[at + 1..].chars().next()));
    single.next().map(|at| at + 1)
}
