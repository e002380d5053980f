//! A long sequence of tokens, from one file or many.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::described::{self, Description};
use super::index;
use super::text;
use super::tokens::{self, Tokens, Width};
use crate::checksum::{Checksum, ChecksumBuilder};
use crate::data::file;
use crate::error::{DataError, Error, Result};
use crate::tokenizer::Tokenizer;

/// How many tokens are read at a time when all are checked.
const BLOCK: u64 = 1 << 16;

/// The beginning of a collection of Shakespeare's plays, in the public domain. These bytes never change, so
/// that figures measured with them can be compared.
const BUILT_IN: &str = include_str!("../builtin/shakespeare.txt");

/// A sequence of tokens, from one file or many, which are read in order.
///
/// Up to 256 MiB of text is held in memory, a byte a token. Longer text and token files stay on disk, and
/// only the requested windows are read: these files must not change while they are used.
#[derive(Debug)]
pub struct Corpus {
    pieces: Vec<Piece>,
    /// The files that it was made from, if these are others.
    made_of: Option<Vec<PathBuf>>,
    scan: OnceLock<Scan>,
}

/// One file's tokens.
#[derive(Debug)]
struct Piece {
    path: PathBuf,
    start: u64,
    end: u64,
    tokens: Tokens,
    /// What stands beside a token file.
    described: Option<Description>,
}

/// A file that has been opened.
struct Opened {
    path: PathBuf,
    tokens: Tokens,
    count: u64,
    described: Option<Description>,
}

/// What is known after every token has been read once.
#[derive(Debug)]
struct Scan {
    contents: Checksum,
    /// The highest token of each piece.
    highest: Vec<u32>,
}

impl Corpus {
    /// The text that is part of this program: the same 131,058 bytes everywhere and in every version.
    pub fn built_in() -> Self {
        Self::of_built_in(Tokens::BuiltIn(BUILT_IN.as_bytes()), BUILT_IN.len())
    }

    /// The same text as the tokens of a tokenizer, with the token that ends a document behind it.
    ///
    /// # Errors
    /// When the tokenizer has no such token, or cannot encode the text.
    pub fn built_in_encoded(tokenizer: &Tokenizer, end_of_text: Option<&str>) -> Result<Self> {
        let (mut tokens, end) = (tokenizer.encode(BUILT_IN)?, tokenizer.end_of_text(end_of_text)?);
        let [_, added] = tokenizer.around();
        tokens.extend((added.last() != Some(&end)).then_some(end));
        let bytes = tokens.iter().flat_map(|token| token.to_le_bytes()).collect();
        Ok(Self::of_built_in(Tokens::Ids(bytes), tokens.len()))
    }

    fn of_built_in(tokens: Tokens, count: usize) -> Self {
        let path = PathBuf::from("built-in text");
        Self::of([Opened { path, tokens, count: count as u64, described: None }])
    }

    /// Text as bytes. A path may be a file, which is read whole, or a folder. A folder is read recursively in
    /// sorted order, without hidden and binary files and without folders named `target` or `runs`.
    ///
    /// # Errors
    /// When a path is missing or empty, cannot be read or is not a regular file. Also when a folder holds no
    /// text.
    pub fn text(paths: &[PathBuf]) -> Result<Self> {
        let read = text::read(paths)?.into_iter();
        Ok(Self::of(read.map(|(path, tokens, count)| Opened { path, tokens, count, described: None })))
    }

    /// Token files: tokens of one width, little endian, and nothing else in the file. A file that has one of
    /// Megatron's indexes beside it (`X.bin` and `X.idx`), or the description that [`TokenWriter`] writes
    /// (`X.bin.json`), has the width that it says; others have `width`.
    ///
    /// # Errors
    /// When a file is missing or empty, cannot be read or is not a regular file. Also when it holds something
    /// else than tokens, when its length is not a whole number of tokens, or when an index or a description
    /// does not fit it.
    ///
    /// [`TokenWriter`]: crate::data::TokenWriter
    pub fn tokens(paths: &[PathBuf], width: Width) -> Result<Self> {
        let opened: Vec<_> = paths.iter().map(|path| open(path, width)).collect::<Result<_>>()?;
        check_same_tokenizer(&opened)?;
        Ok(Self::of(opened))
    }

    /// Refuses tokens that another tokenizer has made, as far as that is known.
    ///
    /// # Errors
    /// [`DataError`] for the first file that another one has made.
    pub fn check_tokenizer(&self, tokenizer: &Tokenizer) -> Result<()> {
        let made_by = |piece: &&Piece| piece.described.as_ref()?.tokenizer.map(|made_by| made_by.checksum);
        let other = |piece: &&Piece| made_by(piece).is_some_and(|known| known != tokenizer.checksum());
        match self.pieces.iter().find(other) {
            None => Ok(()),
            Some(piece) => Err(Error::from(DataError::new(format!(
                "`{}` was made with another tokenizer than `{}`: name that one as data.tokenizer, or write \
                 the tokens again",
                piece.path.display(),
                tokenizer.path().display()
            )))),
        }
    }

    /// The same, with the names of the files that it was made from.
    pub(in crate::data) fn called(mut self, paths: &[PathBuf]) -> Self {
        self.made_of = Some(paths.to_vec());
        self
    }

    fn of(files: impl IntoIterator<Item = Opened>) -> Self {
        let mut start = 0;
        let piece = |file: Opened| {
            let piece = Piece {
                path: file.path,
                start,
                end: start + file.count,
                tokens: file.tokens,
                described: file.described,
            };
            start = piece.end;
            piece
        };
        Self { pieces: files.into_iter().map(piece).collect(), made_of: None, scan: OnceLock::new() }
    }

    /// The number of tokens.
    pub fn count(&self) -> u64 {
        self.pieces.last().map_or(0, |piece| piece.end)
    }

    /// The number of files.
    pub fn files(&self) -> usize {
        self.pieces.len()
    }

    /// Where each document ends: as the index of a file says, or where the file ends.
    pub(in crate::data) fn document_ends(&self) -> Result<Vec<u64>> {
        let mut ends = Vec::new();
        for piece in &self.pieces {
            if let Some((tokens, index)) =
                index::pair(&piece.path).filter(|_| matches!(piece.tokens, Tokens::File(..)))
            {
                ends.extend(index::read(&tokens, &index)?.ends.into_iter().map(|end| piece.start + end));
            }
            if ends.last() != Some(&piece.end) {
                ends.push(piece.end);
            }
        }
        Ok(ends)
    }

    /// A name for messages: the only file, or the first file and the number of others.
    pub fn name(&self) -> String {
        let paths = match &self.made_of {
            Some(paths) => paths.iter().map(PathBuf::as_path).collect(),
            None => self.pieces.iter().map(|piece| piece.path.as_path()).collect::<Vec<_>>(),
        };
        match paths.as_slice() {
            [] => "no file".to_owned(),
            [one] => format!("`{}`", one.display()),
            [first, rest @ ..] => format!("`{}` and {} more", first.display(), rest.len()),
        }
    }

    /// The checksum of all contents. It does not depend on file names, or on where one file ends and the next
    /// begins. All files are read once for a corpus: [`Corpus::check_vocabulary`] shares that reading.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub fn checksum(&self) -> Result<Checksum> {
        Ok(self.scan()?.contents)
    }

    /// Checks that every token is below `vocabulary`. It reads all tokens, unless their width excludes higher
    /// ones.
    ///
    /// # Errors
    /// For the first token that is too high: names the file, the position in it, the token and the limit.
    /// [`DataError`] if a file says that it was made with a larger vocabulary.
    pub fn check_vocabulary(&self, vocabulary: usize) -> Result<()> {
        for piece in &self.pieces {
            let made_by = piece.described.as_ref().and_then(|described| described.tokenizer);
            if let Some(made_by) = made_by.filter(|made_by| made_by.vocabulary > vocabulary) {
                let needed = made_by.vocabulary;
                return Err(Error::from(DataError::new(format!(
                    "`{}` was made with a tokenizer of {needed} tokens, and model.vocab is {vocabulary}: set \
                     model.vocab to {needed}",
                    piece.path.display()
                ))));
            }
        }
        let allows_others = |piece: &Piece| piece.tokens.possible() > vocabulary as u64;
        if !self.pieces.iter().any(allows_others) {
            return Ok(());
        }
        let highest = &self.scan()?.highest;
        let outside = highest.iter().position(|&token| token as usize >= vocabulary);
        match outside {
            None => Ok(()),
            Some(index) => self.pieces[index].refuse_token(vocabulary),
        }
    }

    /// Fills `tokens` with those from position `at` on. All of them must exist.
    pub(in crate::data) fn read(&self, at: u64, tokens: &mut [u32]) -> Result<()> {
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

    fn scan(&self) -> Result<&Scan> {
        if let Some(scan) = self.scan.get() {
            return Ok(scan);
        }
        let mut contents = ChecksumBuilder::new();
        let scan = |piece: &Piece| {
            let scanned = piece.tokens.scan(piece.count(), &mut contents);
            let (highest, checksum) = scanned.map_err(|error| Error::io("read", &piece.path)(error))?;
            match &piece.described {
                Some(described) if described.checksum != checksum => Err(described::differs(&piece.path)),
                _ => Ok(highest),
            }
        };
        let highest = self.pieces.iter().map(scan).collect::<Result<_>>()?;
        let contents = contents.checksum();
        Ok(self.scan.get_or_init(|| Scan { contents, highest }))
    }
}

/// Opens a token file.
fn open(path: &Path, width: Width) -> Result<Opened> {
    let (path, of_index) = match index::pair(path) {
        Some((path, index)) => {
            let width = index::read(&path, &index)?.width;
            (path, Some(width))
        }
        None => (path.to_owned(), None),
    };
    let described = described::read(&path, file::metadata(&path)?.len())?;
    let known = of_index.or_else(|| Some(described.as_ref()?.dtype));
    let (tokens, count) = tokens::open(&path, known.unwrap_or(width), known.is_some())?;
    Ok(Opened { path, tokens, count, described })
}

impl Piece {
    fn count(&self) -> u64 {
        self.end - self.start
    }

    fn read(&self, at: u64, tokens: &mut [u32]) -> Result<()> {
        let read = self.tokens.read(at, tokens);
        read.map_err(|error| Error::io("read", &self.path)(error))
    }

    /// Refuses the first token that is not in the vocabulary.
    fn refuse_token(&self, vocabulary: usize) -> Result<()> {
        let mut block = vec![0; BLOCK as usize];
        let mut at = 0;
        while at < self.count() {
            let block = &mut block[..BLOCK.min(self.count() - at) as usize];
            self.read(at, block)?;
            if let Some(index) = block.iter().position(|&token| token as usize >= vocabulary) {
                return Err(Error::from(DataError::new(format!(
                    "`{}`: token {} at position {} is outside the model's vocabulary of {vocabulary} \
                     (0..={})",
                    self.path.display(),
                    block[index],
                    at + index as u64,
                    vocabulary.saturating_sub(1)
                ))));
            }
            at += block.len() as u64;
        }
        Ok(())
    }
}

/// Refuses files that two tokenizers have made, as far as that is known.
fn check_same_tokenizer(files: &[Opened]) -> Result<()> {
    let made_by = |file: &Opened| Some(file.described.as_ref()?.tokenizer.as_ref()?.checksum);
    let mut known = files.iter().filter_map(|file| Some((file, made_by(file)?)));
    let Some((first, tokenizer)) = known.next() else {
        return Ok(());
    };
    match known.find(|(_, other)| *other != tokenizer) {
        None => Ok(()),
        Some((other, _)) => Err(Error::from(DataError::new(format!(
            "`{}` and `{}` were made with two tokenizers: write both with one, by `pipewright tokenize`",
            first.path.display(),
            other.path.display()
        )))),
    }
}
