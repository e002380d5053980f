//! What a model gives answers before it is trained.

use std::fmt;
use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use crate::checksum::{Checksum, ChecksumBuilder};
use crate::data::Documents;
use crate::data::documents::Lock;
use crate::data::range::empty;
use crate::error::{DataError, Result};
use crate::whole;

/// What a model gives each answer before it is trained: its log-probability, in nats. The loss of preferences
/// compares the model with that.
///
/// A [`Run`](crate::run::Run) finds it out before its first step, with one evaluation of all pairs, and keeps
/// it in a file. A run that is resumed, or that has the same pairs and begins with the same weights, reads it
/// from there.
pub struct Reference {
    documents: Arc<Documents>,
    seq: usize,
    /// Of each document.
    given: OnceLock<Vec<f64>>,
    has_whole_rows: bool,
    kept: Option<Kept>,
    tell: OnceLock<Tell>,
}

/// Hears how many pairs were begun, and how many there are.
pub(super) type Tell = Arc<dyn Fn(u64, u64) + Send + Sync>;

/// Where a reference is kept.
#[derive(Debug)]
struct Kept {
    folder: PathBuf,
    settings: String,
}

impl Reference {
    /// A reference that is not known yet, of answers in at most `seq` tokens.
    ///
    /// # Errors
    /// When the documents are no pairs: see [`Recipe::pairs`](crate::data::Recipe::pairs). When `seq` is 0.
    pub fn new(documents: Arc<Documents>, seq: usize) -> Result<Self> {
        if seq == 0 {
            return Err(empty(&documents.corpus.name(), "token of a row"));
        }
        if !documents.are_pairs {
            return Err(DataError::new(format!(
                "{} are documents and no pairs of answers: encode them with `Recipe::pairs`",
                documents.corpus.name()
            ))
            .into());
        }
        let (given, tell) = (OnceLock::new(), OnceLock::new());
        Ok(Self { documents, seq, given, has_whole_rows: false, kept: None, tell })
    }

    /// No reference: it gives each answer 0.
    ///
    /// # Errors
    /// As [`Reference::new`].
    pub fn none(documents: Arc<Documents>, seq: usize) -> Result<Self> {
        let none = Self::new(documents, seq)?;
        none.assume_none();
        Ok(none)
    }

    /// The same, with rows of `seq` tokens, also where all answers of a micro-batch are shorter: for layers
    /// that need rows of one length.
    #[must_use]
    pub fn with_whole_rows(self) -> Self {
        Self { has_whole_rows: true, ..self }
    }

    /// Whether all rows have `seq` tokens.
    pub fn has_whole_rows(&self) -> bool {
        self.has_whole_rows
    }

    /// The same, kept in a file of this folder. `settings`: all that changes what the model gives besides its
    /// weights, such as its sizes.
    #[must_use]
    pub fn kept_in(self, folder: PathBuf, settings: String) -> Self {
        let kept = Some(Kept { folder, settings });
        Self { kept, ..self }
    }

    /// The number of pairs.
    pub fn pairs(&self) -> u64 {
        self.documents.count() / 2
    }

    /// The pairs.
    pub fn documents(&self) -> &Arc<Documents> {
        &self.documents
    }

    /// How many tokens an answer has at most, with what stands before it.
    pub fn seq(&self) -> usize {
        self.seq
    }

    /// While it is found out, `tell` hears how many pairs were begun, and how many there are. If it is called
    /// again, the first one stays.
    pub fn on_progress(&self, tell: impl Fn(u64, u64) + Send + Sync + 'static) {
        let _ = self.tell.set(Arc::new(tell));
    }

    /// Who hears of it.
    pub(super) fn tell(&self) -> Option<Tell> {
        self.tell.get().cloned()
    }

    /// Whether it is known.
    pub fn is_known(&self) -> bool {
        self.given.get().is_some()
    }

    /// What it gives a document.
    pub(super) fn given(&self, document: u64) -> Result<f64> {
        let given = self.given.get().ok_or_else(|| {
            DataError::new(format!(
                "{}: what the model gives the answers before the training is not known yet: a run finds it \
                 out (`Run::reference`)",
                self.documents.corpus.name()
            ))
        })?;
        Ok(given[document as usize])
    }

    /// From now on it gives each answer 0, unless it is known: to measure how long a step takes.
    pub fn assume_none(&self) {
        self.know(vec![0.0; self.documents.count() as usize]);
    }

    /// All of it, if it is known.
    pub(crate) fn all(&self) -> Option<&[f64]> {
        self.given.get().map(Vec::as_slice)
    }

    /// From now on it is known. What was known before stays.
    pub(crate) fn know(&self, given: Vec<f64>) {
        assert_eq!(given.len() as u64, self.documents.count(), "a number for each document");
        let _ = self.given.set(given);
    }

    /// The file for a model with these weights.
    fn file(&self, weights: &str) -> Option<PathBuf> {
        let Kept { folder, settings } = self.kept.as_ref()?;
        let mut key = ChecksumBuilder::new();
        for part in
            ["reference 1", &self.documents.contents.to_string(), &self.seq.to_string(), settings, weights]
        {
            key.add(&(part.len() as u64).to_le_bytes());
            key.add(part.as_bytes());
        }
        Some(folder.join(format!("{}.reference", key.checksum())))
    }

    /// What is kept for a model with these weights: of the first pairs, or of all. A file that is damaged is
    /// as good as none.
    pub(crate) fn kept(&self, weights: &str) -> Option<Vec<f64>> {
        let bytes = fs::read(self.file(weights)?).ok()?;
        let of_numbers = bytes.len().checked_sub(checksum(&[]).to_string().len())?;
        let (numbers, sum) = bytes.split_at(of_numbers);
        let fits = sum == checksum(numbers).to_string().as_bytes();
        let (numbers, rest) = numbers.as_chunks();
        let are_pairs = rest.is_empty() && numbers.len().is_multiple_of(2);
        let are_some = are_pairs && numbers.len() as u64 <= self.documents.count();
        (fits && are_some).then(|| numbers.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect())
    }

    /// Keeps what a model with these weights gives the answers of the first pairs, or of all.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(crate) fn keep(&self, weights: &str, given: &[f64]) -> Result<()> {
        let Some(file) = self.file(weights) else {
            return Ok(());
        };
        let _lock = Lock::take(&file)?;
        let numbers: Vec<u8> = given.iter().flat_map(|number| number.to_le_bytes()).collect();
        let sum = checksum(&numbers).to_string();
        let bytes = [&numbers, sum.as_bytes()].concat();
        whole::make(&file, |file| file.write_all(&bytes)).map(drop)
    }
}

impl fmt::Debug for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, pairs, is_known) = (self.documents.corpus.name(), self.pairs(), self.is_known());
        f.debug_struct("Reference")
            .field("documents", &name)
            .field("pairs", &pairs)
            .field("is_known", &is_known)
            .finish_non_exhaustive()
    }
}

fn checksum(numbers: &[u8]) -> Checksum {
    let mut checksum = ChecksumBuilder::new();
    checksum.add(numbers);
    checksum.checksum()
}
