//! Writes token files.

use std::path::{Path, PathBuf};

use super::described::{self, Description, MadeBy};
use super::index::{self, Index};
use super::partial::Partial;
use crate::checksum::{Checksum, ChecksumBuilder};
use crate::data::Width;
use crate::error::{Error, Result};
use crate::tokenizer::Tokenizer;

/// Writes a token file, its description `X.bin.json`, and Megatron's index of it if there shall be one.
///
/// The files have their names only when they are complete: [`TokenWriter::finish`] gives them.
#[derive(Debug)]
pub struct TokenWriter {
    path: PathBuf,
    file: Partial,
    width: Width,
    count: u64,
    ends: Vec<u64>,
    checksum: ChecksumBuilder,
    tokenizer: Option<MadeBy>,
}

/// What was written.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Written {
    /// The tokens.
    pub tokens: u64,
    /// The tokens of each document.
    pub documents: Vec<u64>,
}

impl TokenWriter {
    /// Begins a token file with tokens of this width. `path` is the name of the `.bin`.
    ///
    /// # Errors
    /// When the file cannot be made.
    pub fn create(path: &Path, width: Width) -> Result<Self> {
        Ok(Self {
            path: path.to_owned(),
            file: Partial::create(path)?,
            width,
            count: 0,
            ends: Vec::new(),
            checksum: ChecksumBuilder::new(),
            tokenizer: None,
        })
    }

    /// Says which tokenizer makes the tokens.
    pub(in crate::data) fn made_by(&mut self, tokenizer: &Tokenizer) {
        self.tokenizer = Some(MadeBy { checksum: tokenizer.checksum(), vocabulary: tokenizer.vocabulary() });
    }

    /// Adds tokens. All of them fit the width.
    ///
    /// # Errors
    /// When the file cannot be written, as on a full disk.
    pub fn add(&mut self, tokens: &[u32]) -> Result<()> {
        self.count += tokens.len() as u64;
        let bytes: Vec<u8> = match self.width {
            Width::U16 => tokens.iter().flat_map(|token| (*token as u16).to_le_bytes()).collect(),
            Width::U32 => tokens.iter().flat_map(|token| token.to_le_bytes()).collect(),
        };
        self.checksum.add(&bytes);
        self.file.write(&bytes)
    }

    /// Ends a document after the tokens that were added so far.
    pub fn end_document(&mut self) {
        self.ends.push(self.count);
    }

    /// Completes the file and its description, and writes its index if `indexed`.
    ///
    /// # Errors
    /// When a file cannot be written, or when a document is too long for an index.
    pub fn finish(mut self, indexed: bool) -> Result<Written> {
        self.file.complete()?;
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        let documents = self.ends.iter().zip(starts).map(|(end, start)| end - start).collect();
        let written = Written { tokens: self.count, documents };
        let index = match indexed {
            true => Some(self.index()?),
            false => None,
        };
        let description = self.describe(index.as_ref().map(|(_, checksum)| *checksum))?;
        // A description without its tokens does no harm, and an index without its tokens would be refused.
        description.name()?;
        self.file.name()?;
        if let Some((index, _)) = index {
            index.name()?;
        }
        Ok(written)
    }

    /// The complete index, and its checksum.
    fn index(&mut self) -> Result<(Partial, Checksum)> {
        let path = self.path.with_extension("idx");
        let mut bytes = Vec::new();
        let (width, ends) = (self.width, std::mem::take(&mut self.ends));
        index::write(&path, &mut bytes, &Index { width, ends })?;
        Ok((whole(&path, &bytes)?, Checksum::of(&bytes)))
    }

    fn describe(&self, index: Option<Checksum>) -> Result<Partial> {
        let description = Description {
            dtype: self.width,
            tokens: self.count,
            checksum: self.checksum.checksum(),
            index,
            tokenizer: self.tokenizer,
        };
        let path = described::beside(&self.path);
        let mut text =
            serde_json::to_vec(&description).map_err(|error| Error::io("write", &path)(error.into()))?;
        text.push(b'\n');
        whole(&path, &text)
    }
}

/// A complete file with these bytes, still without its name.
fn whole(path: &Path, bytes: &[u8]) -> Result<Partial> {
    let mut file = Partial::create(path)?;
    file.write(bytes)?;
    file.complete()?;
    Ok(file)
}
