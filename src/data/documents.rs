//! Documents as tokens, kept in a file of a folder for such files.

use std::fs::{self, File};
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::file::{self, is_there, wrong};
use super::token_files::partial::remove_left;
use super::token_files::{described, index};
use super::{Corpus, Encoded, Recipe, TokenWriter, Width};
use crate::checksum::{Checksum, ChecksumBuilder};
use crate::error::{Error, Result};
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
    /// Whether they are pairs of answers.
    pub(super) are_pairs: bool,
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
            return Err(without_document(paths));
        }
        Ok(Self {
            corpus: corpus.called(paths),
            ends,
            contents,
            is_masked: recipe.is_masked(),
            are_pairs: recipe.pairs,
        })
    }

    /// The documents of a corpus: those that the index of a token file tells of; any other file is one.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub fn of(corpus: Corpus) -> Result<Self> {
        let ends = corpus.document_ends()?;
        let mut contents = ChecksumBuilder::new();
        contents.add(corpus.checksum()?.to_string().as_bytes());
        ends.iter().for_each(|end| contents.add(&end.to_le_bytes()));
        Ok(Self { corpus, ends, contents: contents.checksum(), is_masked: false, are_pairs: false })
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
    if writer.finish(true)?.documents.is_empty() {
        return Err(without_document(paths));
    }
    kept(tokens)
}

fn without_document(paths: &[PathBuf]) -> Error {
    wrong(&paths.first().cloned().unwrap_or_default(), "has no document")
}

/// The right to make a token file. The system ends it with the process, for whatever reason.
pub(super) struct Lock {
    path: PathBuf,
    _file: File,
}

impl Lock {
    /// Waits until nobody else has it. Where the file system has no locks, everybody gets it at once. What
    /// killed processes have left in the folder is removed.
    pub(super) fn take(tokens: &Path) -> Result<Self> {
        let folder = tokens.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(folder).map_err(Error::io("make", folder))?;
        let path = tokens.with_extension("lock");
        let file = loop {
            let file = File::create(&path).map_err(Error::io("write", &path))?;
            let is_locked = file.lock().is_ok();
            // The process that had the lock before has removed the file. Another one may have made it again.
            if !is_locked || is_there(&file, &path) {
                break file;
            }
        };
        remove_left(folder, is_of_cache);
        Ok(Self { path, _file: file })
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Whether a file of this name is one of the cache's: its name begins with a checksum.
fn is_of_cache(name: &str) -> bool {
    let stem = name.split('.').next().unwrap_or_default();
    stem.parse::<Checksum>().is_ok()
}
