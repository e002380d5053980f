//! Documents as tokens, kept in a file.

use std::fs::{self, File};
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::index;
use super::{Corpus, Encoded, Recipe, TokenWriter, Width};
use crate::checksum::Checksum;
use crate::error::{DataError, Error, FileProblem, Result};
use crate::tokenizer::Tokenizer;

/// Documents that are encoded: their tokens, and where each ends.
///
/// The tokens are in a token file that is made once, in a folder for such files, under a name that follows
/// from the documents' contents, the tokenizer and the recipe. So it is found again by every later run, and
/// by the other processes of this one.
#[derive(Debug)]
pub struct Documents {
    pub(super) corpus: Corpus,
    pub(super) ends: Vec<u64>,
    pub(super) contents: Checksum,
}

/// The right to make a token file. The system ends it with the process, for whatever reason.
struct Lock {
    path: PathBuf,
    _file: File,
}

impl Lock {
    /// Waits until nobody else has it. Where the file system has no locks, everybody gets it at once.
    fn take(path: PathBuf) -> Result<Self> {
        let file = File::create(&path).map_err(Error::io("write", &path))?;
        let _ = file.lock();
        Ok(Self { path, _file: file })
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
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
        let index = tokens.with_extension("idx");
        let is_made = || tokens.exists() && index.exists();
        if !is_made() {
            fs::create_dir_all(folder).map_err(Error::io("make", folder))?;
            let lock = Lock::take(tokens.with_extension("lock"))?;
            if !is_made() {
                let mut writer = TokenWriter::create(&tokens, Width::U32)?;
                recipe.encode(paths, tokenizer, &mut writer, tell)?;
                writer.finish(true)?;
            }
            drop(lock);
        }
        let ends = index::read(&tokens, &index)?.ends;
        if ends.is_empty() {
            let path = paths.first().cloned().unwrap_or_default();
            let problem = FileProblem::NoDocuments;
            return Err(DataError::File { path, problem }.into());
        }
        let corpus = Corpus::tokens(&[tokens], Width::U32)?.called(paths);
        Ok(Self {
            corpus,
            ends,
            contents,
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
