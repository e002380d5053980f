//! Documents as tokens, kept in a file.

use std::ops::Range;
use std::path::{Path, PathBuf};

use super::cache::Lock;
use super::file::wrong;
use super::{Corpus, Encoded, LossOn, Recipe, TokenWriter, Width};
use super::{described, file, index};
use crate::checksum::{Checksum, ChecksumBuilder};
use crate::error::Result;
use crate::tokenizer::Tokenizer;

/// Documents that are encoded: their tokens, and where each ends.
///
/// The tokens are in a token file that is made once, in a folder for such files, under a name that follows
/// from the documents' contents, the tokenizer and the recipe. So it is found again by every later run, and
/// by the other processes of this one. It is compared with its checksum each time, and made again if it
/// differs.
#[derive(Debug)]
pub struct Documents {
    pub(super) corpus: Corpus,
    pub(super) ends: Vec<u64>,
    pub(super) contents: Checksum,
    /// Whether only some tokens are targets.
    pub(super) is_masked: bool,
}

impl Documents {
    /// Encodes files and the files of folders, unless `folder` has their tokens. `tell` hears how far this
    /// is.
    ///
    /// If another process is encoding the same, this waits for it.
    ///
    /// # Errors
    /// As [`Recipe::encode`]. When the folder cannot be made or written to. When there is no document.
    pub fn encode(
        paths: &[PathBuf],
        tokenizer: &Tokenizer,
        recipe: &Recipe,
        folder: &Path,
        tell: &mut dyn FnMut(Encoded),
    ) -> Result<Self> {
        let contents = recipe.checksum(paths, tokenizer)?;
        let tokens = folder.join(format!("{contents}.bin"));
        let (corpus, ends) = match kept(&tokens) {
            Ok(kept) => kept,
            // Whatever is wrong with what is kept, it is made again.
            Err(_) => make(&tokens, paths, tokenizer, recipe, tell)?,
        };
        if ends.is_empty() {
            let path = paths.first().cloned().unwrap_or_default();
            return Err(wrong(&path, "has no document"));
        }
        Ok(Self {
            corpus: corpus.called(paths),
            ends,
            contents,
            is_masked: recipe.loss_on == LossOn::Answers,
        })
    }

    /// The number of documents.
    pub fn count(&self) -> u64 {
        self.ends.len() as u64
    }

    /// The tokens of all documents, one after the other.
    pub fn corpus(&self) -> &Corpus {
        &self.corpus
    }

    /// The same, without the documents' ends.
    pub fn into_corpus(self) -> Corpus {
        self.corpus
    }

    /// Where the tokens of a range of documents are.
    pub(super) fn tokens(&self, documents: &Range<u64>) -> Range<u64> {
        self.start(documents.start)..self.start(documents.end)
    }

    /// Where a document begins; for the number of documents, where the last one ends.
    fn start(&self, document: u64) -> u64 {
        match document {
            0 => 0,
            document => self.ends[document as usize - 1],
        }
    }
}

/// The tokens of a token file with its index and its description, and where documents end. All of it is
/// compared with its checksums.
fn kept(tokens: &Path) -> Result<(Corpus, Vec<u64>)> {
    let path = tokens.with_extension("idx");
    let ends = index::read(tokens, &path)?.ends;
    let mut checksum = ChecksumBuilder::new();
    file::add_to(&mut checksum, &path)?;
    let described = described::read(tokens, file::metadata(tokens)?.len())?;
    if described.and_then(|described| described.index) != Some(checksum.checksum()) {
        return Err(described::differs(tokens));
    }
    let corpus = Corpus::tokens(&[tokens.to_owned()], Width::U32)?;
    corpus.checksum()?;
    Ok((corpus, ends))
}

/// Makes a token file, unless another process does it meanwhile.
fn make(
    tokens: &Path,
    paths: &[PathBuf],
    tokenizer: &Tokenizer,
    recipe: &Recipe,
    tell: &mut dyn FnMut(Encoded),
) -> Result<(Corpus, Vec<u64>)> {
    let _lock = Lock::take(tokens)?;
    if let Ok(kept) = kept(tokens) {
        return Ok(kept);
    }
    let mut writer = TokenWriter::create(tokens, Width::U32)?;
    recipe.encode(paths, tokenizer, &mut writer, tell)?;
    writer.finish(true)?;
    kept(tokens)
}
