//! A tokenizer, read from the file of a model.

use std::fmt;
use std::ops::Range;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};

use serde::de::IgnoredAny;
use tokenizers::Tokenizer as Inner;

use crate::checksum::{Checksum, ChecksumBuilder};
use crate::error::{DataError, Error, Result, TokenizerProblem};

/// The name of the file in a model's folder.
const FILE: &str = "tokenizer.json";

/// The tokens by which models mark the end of a document, in the order in which they are looked for: those of
/// GPT-2, Qwen and SmolLM2, of Llama 3, of Llama 2 and Mistral, and of Gemma.
const ENDS: [&str; 4] = ["<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>"];

/// A tokenizer: it turns text into tokens and tokens into text.
pub struct Tokenizer {
    inner: Inner,
    path: PathBuf,
    checksum: Checksum,
}

impl Tokenizer {
    /// Reads a `tokenizer.json`, or the one in a folder. What it says of truncation and padding is left out:
    /// every text is encoded whole, and nothing is added to it.
    ///
    /// # Errors
    /// When the file is missing, or is no tokenizer.
    pub fn read(path: &Path) -> Result<Self> {
        let is_folder = path.is_dir();
        let path = if is_folder {
            path.join(FILE)
        } else {
            path.to_owned()
        };
        if is_folder && !path.exists() {
            let folder = path.parent().unwrap_or(&path);
            return Err(refuse(folder, TokenizerProblem::NotInFolder));
        }
        let unreadable = |source| -> Error {
            let path = path.clone();
            DataError::Unreadable { path, source }.into()
        };
        // A pipe is refused before it is opened: that would wait until somebody writes into it.
        if !std::fs::metadata(&path).map_err(unreadable)?.is_file() {
            return Err(refuse(&path, TokenizerProblem::NotRegular));
        }
        let bytes = std::fs::read(&path).map_err(unreadable)?;
        let no_tokenizer = |error: tokenizers::Error| refuse(&path, TokenizerProblem::Broken(told(&error)));
        let mut inner = parsed(&bytes).map_err(no_tokenizer)?;
        inner.with_truncation(None).map_err(no_tokenizer)?;
        inner.with_padding(None);
        let mut checksum = ChecksumBuilder::new();
        checksum.add(&bytes);
        Ok(Self {
            inner,
            path,
            checksum: checksum.checksum(),
        })
    }

    /// The file that was read.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The checksum of the file.
    pub fn checksum(&self) -> Checksum {
        self.checksum
    }

    /// The tokens of a text. Special tokens that the text spells out are recognised; none is added.
    ///
    /// # Errors
    /// When the tokenizer has no token for a part of the text, not even an unknown one.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        let encoded = self.inner.encode_fast(text, false);
        let encoded = encoded.map_err(|error| self.cannot_encode(&error))?;
        Ok(encoded.get_ids().to_vec())
    }

    /// The same tokens, each with the bytes of the text that it stands for.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`].
    pub fn encode_with_places(&self, text: &str) -> Result<Vec<(u32, Range<usize>)>> {
        let encoded = self.inner.encode(text, false);
        let encoded = encoded.map_err(|error| self.cannot_encode(&error))?;
        let places = encoded.get_offsets().iter().map(|&(start, end)| start..end);
        Ok(encoded.get_ids().iter().copied().zip(places).collect())
    }

    /// The text of tokens, with special tokens spelled out. Bytes that are not a whole character become
    /// U+FFFD, and tokens that do not exist become nothing.
    ///
    /// # Errors
    /// When the tokenizer's decoder refuses them.
    pub fn decode(&self, tokens: &[u32]) -> Result<String> {
        let decoded = self.inner.decode(tokens, false);
        decoded.map_err(|error| refuse(&self.path, TokenizerProblem::Undecodable(told(&error))))
    }

    /// The number of tokens that a model has to know: one more than the highest token.
    pub fn vocabulary(&self) -> usize {
        let highest = self.inner.get_vocab(true).into_values().max();
        highest.map_or(0, |token| token as usize + 1)
    }

    /// The special tokens and their texts, in the order of the tokens.
    pub fn special_tokens(&self) -> Vec<(u32, String)> {
        let added = self.inner.get_added_tokens_decoder();
        let special = added.into_iter().filter(|(_, token)| token.special);
        let mut special: Vec<_> = special.map(|(token, text)| (token, text.content)).collect();
        special.sort();
        special
    }

    /// The token that ends a document: the one with this text, or else the first that exists of
    /// `<|endoftext|>`, `<|end_of_text|>`, `</s>` and `<eos>`.
    ///
    /// # Errors
    /// When the tokenizer has no such token.
    pub fn end_of_text(&self, named: Option<&str>) -> Result<u32> {
        let token = match named {
            Some(name) => self.inner.token_to_id(name),
            None => ENDS.into_iter().find_map(|name| self.inner.token_to_id(name)),
        };
        token.ok_or_else(|| {
            let problem = match named {
                Some(name) => TokenizerProblem::NoToken(name.to_owned()),
                None => TokenizerProblem::NoEndOfText(&ENDS),
            };
            refuse(&self.path, problem)
        })
    }

    /// Refuses a model that does not know all tokens.
    ///
    /// # Errors
    /// [`TokenizerProblem::Vocabulary`].
    pub fn check_vocabulary(&self, known: usize) -> Result<()> {
        let needed = self.vocabulary();
        if needed <= known {
            return Ok(());
        }
        Err(refuse(&self.path, TokenizerProblem::Vocabulary { needed, known }))
    }

    fn cannot_encode(&self, error: &tokenizers::Error) -> Error {
        refuse(&self.path, TokenizerProblem::Unencodable(told(error)))
    }
}

impl fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokenizer")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

/// The crate panics on some files that are no tokenizers, so a file that is cut off is found before.
fn parsed(bytes: &[u8]) -> tokenizers::Result<Inner> {
    serde_json::from_slice::<IgnoredAny>(bytes)?;
    catch_unwind(|| Inner::from_bytes(bytes)).unwrap_or_else(|_| Err("a part of it has no known form".into()))
}

fn refuse(path: &Path, problem: TokenizerProblem) -> Error {
    let path = path.to_owned();
    DataError::Tokenizer { path, problem }.into()
}

fn told(error: &tokenizers::Error) -> String {
    error.to_string()
}
