//! A long sequence of tokens, out of one or many files.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::text;
use crate::error::{Error, Result};

/// How many tokens are read at a time when all are looked at.
const CHUNK: u64 = 1 << 16;

/// The width of a token in a token file, little endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// Two bytes.
    U16,
    /// Four bytes.
    U32,
}

impl Width {
    fn bytes(self) -> u64 {
        match self {
            Self::U16 => 2,
            Self::U32 => 4,
        }
    }
}

/// A sequence of tokens, out of one or many files read in order. Text is held in memory, one byte a token;
/// token files stay on disk, and only the windows asked for are read.
#[derive(Debug)]
pub struct Corpus {
    pieces: Vec<Piece>,
}

/// One file's tokens.
#[derive(Debug)]
struct Piece {
    path: PathBuf,
    start: u64,
    end: u64,
    store: Store,
}

#[derive(Debug)]
enum Store {
    Bytes(Vec<u8>),
    File(File, Width),
}

impl Corpus {
    /// Text as bytes: each path is a file, taken whole, or a folder, read recursively in sorted order without
    /// hidden and binary files and without folders named `target` or `runs`.
    ///
    /// # Errors
    /// When a path is missing or empty or cannot be read, or when a folder holds no text.
    pub fn text(paths: &[PathBuf]) -> Result<Self> {
        let files = text::read(paths)?;
        Self::of(files.into_iter().map(|(path, bytes)| {
            let count = bytes.len() as u64;
            Ok((path, count, Store::Bytes(bytes)))
        }))
    }

    /// Token files: tokens of one width, little endian, nothing else in the file.
    ///
    /// # Errors
    /// When a file is missing, empty or cannot be read, or when its length is not a whole number of tokens.
    pub fn tokens(paths: &[PathBuf], width: Width) -> Result<Self> {
        Self::of(paths.iter().map(|path| {
            let (file, count) = open(path, width)?;
            Ok((path.clone(), count, Store::File(file, width)))
        }))
    }

    fn of(files: impl Iterator<Item = Result<(PathBuf, u64, Store)>>) -> Result<Self> {
        let mut start = 0;
        let pieces = files.map(|file| {
            let (path, count, store) = file?;
            let piece = Piece {
                path,
                start,
                end: start + count,
                store,
            };
            start = piece.end;
            Ok(piece)
        });
        Ok(Self {
            pieces: pieces.collect::<Result<_>>()?,
        })
    }

    /// The number of tokens.
    pub fn count(&self) -> u64 {
        self.pieces.last().map_or(0, |piece| piece.end)
    }

    /// The number of files.
    pub fn files(&self) -> usize {
        self.pieces.len()
    }

    /// A name for messages: the file, or the first and how many more there are.
    pub fn name(&self) -> String {
        match self.pieces.as_slice() {
            [] => "no file".to_owned(),
            [one] => format!("`{}`", one.path.display()),
            [first, rest @ ..] => format!("`{}` and {} more", first.path.display(), rest.len()),
        }
    }

    /// Checks that every token is below `vocabulary`, reading all of them once when the width allows others.
    ///
    /// # Errors
    /// At the first token outside: names the file, the position in it, the token and the limit.
    pub fn check_vocabulary(&self, vocabulary: usize) -> Result<()> {
        let mut chunk = vec![0; CHUNK as usize];
        for piece in self
            .pieces
            .iter()
            .filter(|piece| piece.store.tokens_known() > vocabulary as u64)
        {
            let mut at = piece.start;
            while at < piece.end {
                let chunk = &mut chunk[..CHUNK.min(piece.end - at) as usize];
                self.read(at, chunk)?;
                if let Some(index) = chunk.iter().position(|&token| token as usize >= vocabulary) {
                    return Err(Error::Data(format!(
                        "`{}`: token {} at position {} is outside the model's vocabulary of {vocabulary} \
                         (0..={})",
                        piece.path.display(),
                        chunk[index],
                        at - piece.start + index as u64,
                        vocabulary.saturating_sub(1),
                    )));
                }
                at += chunk.len() as u64;
            }
        }
        Ok(())
    }

    /// Fills `tokens` with those from position `at` on; all must exist.
    pub(super) fn read(&self, at: u64, tokens: &mut [u32]) -> Result<()> {
        let first = self.pieces.partition_point(|piece| piece.end <= at);
        let (mut at, mut rest) = (at, tokens);
        for piece in &self.pieces[first..] {
            let count = (rest.len() as u64).min(piece.end - at) as usize;
            let (here, after) = rest.split_at_mut(count);
            piece.read(at - piece.start, here)?;
            if after.is_empty() {
                break;
            }
            (at, rest) = (piece.end, after);
        }
        Ok(())
    }
}

impl Store {
    /// The number of different tokens it could hold.
    fn tokens_known(&self) -> u64 {
        match self {
            Self::Bytes(_) => 1 << 8,
            Self::File(_, width) => 1 << (8 * width.bytes()),
        }
    }
}

impl Piece {
    fn read(&self, at: u64, tokens: &mut [u32]) -> Result<()> {
        match &self.store {
            Store::Bytes(bytes) => {
                for (token, &byte) in tokens.iter_mut().zip(&bytes[at as usize..]) {
                    *token = u32::from(byte);
                }
                Ok(())
            }
            Store::File(file, width) => {
                let read = read_tokens(file, *width, at, tokens);
                read.map_err(|error| Error::io("read", &self.path)(error))
            }
        }
    }
}

/// Fills `tokens` from the file. Tokens of four bytes are read in place; those of two are read into the second half and spread
/// out from there.
fn read_tokens(file: &File, width: Width, at: u64, tokens: &mut [u32]) -> std::io::Result<()> {
    let count = tokens.len();
    let bytes: &mut [u8] = bytemuck::cast_slice_mut(tokens);
    match width {
        Width::U32 => {
            file.read_exact_at(bytes, at * width.bytes())?;
            tokens.iter_mut().for_each(|token| *token = u32::from_le(*token));
        }
        Width::U16 => {
            file.read_exact_at(&mut bytes[2 * count..], at * width.bytes())?;
            for index in 0..count {
                let place = 2 * (count + index);
                let token = u16::from_le_bytes([bytes[place], bytes[place + 1]]);
                bytes[4 * index..4 * index + 4].copy_from_slice(&u32::from(token).to_ne_bytes());
            }
        }
    }
    Ok(())
}

/// A token file and the number of its tokens.
fn open(path: &Path, width: Width) -> Result<(File, u64)> {
    let file = File::open(path).map_err(|error| text::missing(path, &error))?;
    let metadata = file.metadata().map_err(Error::io("read", path))?;
    let wrong = |what: String| Err(Error::Data(format!("`{}` {what}", path.display())));
    if !metadata.is_file() {
        return wrong("is not a file; name a token file".to_owned());
    }
    let (bytes, each) = (metadata.len(), width.bytes());
    if bytes == 0 {
        return wrong("is empty".to_owned());
    }
    if !bytes.is_multiple_of(each) {
        return wrong(format!(
            "holds {bytes} bytes, which is not a whole number of tokens of {each} bytes"
        ));
    }
    Ok((file, bytes / each))
}
