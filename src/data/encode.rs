//! Documents become tokens, on all cores.

use std::path::PathBuf;
use std::thread;

use super::raw::{self, Form, Piece, Template};
use super::{LossOn, TokenWriter};
use crate::checksum::{Checksum, ChecksumBuilder};
use crate::error::{DataError, Error, RecordProblem, Result};
use crate::tokenizer::Tokenizer;

/// The bit of a token that is no target: it was not written by the assistant of a chat. No vocabulary is so
/// large.
pub(super) const NO_TARGET: u32 = 1 << 31;

/// How many bytes a thread encodes before its tokens are written.
const SHARE: u64 = 1 << 20;

/// How files become tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recipe {
    /// The form of the files.
    pub form: Form,
    /// The field of a line, or the column of a table, that has the text or the messages.
    pub field: String,
    /// How messages become text.
    pub template: Template,
    /// Which tokens are targets.
    pub loss_on: LossOn,
    /// The token that ends a document, by its text. `None` for the one that the tokenizer usually has.
    pub end_of_text: Option<String>,
}

/// How far the work is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encoded {
    /// The bytes of files that are encoded.
    pub bytes: u64,
    /// The bytes of all files.
    pub all: u64,
}

impl Recipe {
    /// The recipe for this form, with the first field and template that come to mind: `text`, ChatML, and
    /// all tokens are targets.
    pub fn new(form: Form) -> Self {
        Self {
            form,
            field: "text".to_owned(),
            template: Template::default(),
            loss_on: LossOn::default(),
            end_of_text: None,
        }
    }

    /// Encodes files and the files of folders, each document with a token at its end. The result does not
    /// depend on the number of cores.
    ///
    /// A token that is no target has the highest bit; there are such only with [`LossOn::Answers`].
    ///
    /// # Errors
    /// When a file cannot be read or has a broken line, which is named. When the tokenizer has no token that
    /// ends a document.
    pub fn encode(
        &self,
        paths: &[PathBuf],
        tokenizer: &Tokenizer,
        to: &mut TokenWriter,
        tell: &mut dyn FnMut(Encoded),
    ) -> Result<()> {
        let end = tokenizer.end_of_text(self.end_of_text.as_deref())?;
        let end = end
            | if self.loss_on == LossOn::Answers {
                NO_TARGET
            } else {
                0
            };
        let files = raw::find(paths, self.form)?;
        let all = files.iter().map(|(_, bytes)| bytes).sum();
        let threads = thread::available_parallelism().map_or(1, usize::from);
        let mut done = 0;
        for (path, bytes) in files {
            let mut pieces = raw::open(path, self.form, &self.field)?;
            let mut read = 0;
            loop {
                let batch = batch(&mut pieces, threads as u64 * SHARE)?;
                if batch.is_empty() {
                    break;
                }
                read += batch.iter().map(|piece| piece.bytes).sum::<u64>();
                for (piece, tokens) in batch.iter().zip(self.on_threads(&batch, tokenizer, threads)?) {
                    to.add(&tokens)?;
                    if piece.ends {
                        to.add(&[end])?;
                        to.end_document();
                    }
                }
                tell(Encoded {
                    bytes: done + read.min(bytes),
                    all,
                });
            }
            done += bytes;
        }
        Ok(())
    }

    /// The checksum of all that the tokens depend on: the files' contents, the tokenizer and this.
    ///
    /// # Errors
    /// When a file is missing or cannot be read.
    pub fn checksum(&self, paths: &[PathBuf], tokenizer: &Tokenizer) -> Result<Checksum> {
        let mut checksum = ChecksumBuilder::new();
        checksum.add(format!("tokens 1, {self:?}, {}", tokenizer.checksum()).as_bytes());
        for (path, bytes) in raw::find(paths, self.form)? {
            checksum.add(&bytes.to_le_bytes());
            super::file::add_to(&mut checksum, &path)?;
        }
        Ok(checksum.checksum())
    }

    /// The tokens of each piece, in order.
    fn on_threads(&self, batch: &[Piece], tokenizer: &Tokenizer, threads: usize) -> Result<Vec<Vec<u32>>> {
        let each = batch.len().div_ceil(threads).max(1);
        let encode = |share: &[Piece]| -> Result<Vec<Vec<u32>>> {
            share.iter().map(|piece| self.tokens(piece, tokenizer)).collect()
        };
        let results: Vec<Result<Vec<Vec<u32>>>> = thread::scope(|scope| {
            let shares: Vec<_> = batch.chunks(each).collect();
            let started: Vec<_> = shares.iter().map(|share| scope.spawn(|| encode(share))).collect();
            let joined = started.into_iter().map(thread::ScopedJoinHandle::join);
            joined
                .map(|result| result.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                .collect()
        });
        let shares: Vec<_> = results.into_iter().collect::<Result<_>>()?;
        Ok(shares.into_iter().flatten().collect())
    }

    fn tokens(&self, piece: &Piece, tokenizer: &Tokenizer) -> Result<Vec<u32>> {
        if self.form == Form::Text {
            return tokenizer.encode(&piece.text);
        }
        let refuse = |problem| -> Error {
            let (path, line) = (piece.path.to_path_buf(), piece.line);
            let unit = if self.form == Form::Jsonl { "line" } else { "row" };
            DataError::Record {
                path,
                unit,
                line,
                problem,
            }
            .into()
        };
        let document = raw::document(&piece.text, &self.field, self.template).map_err(refuse)?;
        if self.loss_on == LossOn::All {
            return tokenizer.encode(&document.text);
        }
        let answers = document.answers.ok_or_else(|| refuse(RecordProblem::NoChat))?;
        let places = tokenizer.encode_with_places(&document.text)?;
        let marked = places.into_iter().map(|(token, place)| {
            // A place may leave out white space at its ends, and be empty: then it is where that ended.
            let in_answer =
                |answer: &std::ops::Range<usize>| place.end > answer.start && place.start < answer.end;
            match answers.iter().any(in_answer) {
                true => token,
                false => token | NO_TARGET,
            }
        });
        Ok(marked.collect())
    }
}

/// The next pieces, of so many bytes together.
fn batch(pieces: &mut raw::Pieces, bytes: u64) -> Result<Vec<Piece>> {
    let (mut batch, mut held) = (Vec::new(), 0);
    while held < bytes {
        let Some(piece) = pieces.next() else {
            break;
        };
        let piece = piece?;
        held += piece.bytes;
        batch.push(piece);
    }
    Ok(batch)
}
