//! Tokens that become text one after the other.

use super::Tokenizer;
use crate::error::Result;

/// What a decoder writes for bytes that are not a whole character.
const REPLACEMENT: char = '\u{fffd}';

/// The most bytes at the end of a text that may be the beginning of a character.
const UNFINISHED: usize = 3;

/// How many tokens wait for the end of a character at most. What has waited so long is no character.
const PATIENCE: usize = 16;

/// Text that grows by a token at a time. The bytes of a character that is not yet whole wait for the rest.
#[derive(Debug)]
pub struct TextStream<'a> {
    tokenizer: &'a Tokenizer,
    /// The last tokens. The first of them is shown, and is here because what a token becomes may depend on
    /// the one before it: many tokenizers leave out a space at the beginning of a text.
    tokens: Vec<u32>,
    /// How many bytes of the text of these tokens are shown.
    shown: usize,
}

impl<'a> TextStream<'a> {
    /// A text that has nothing yet.
    pub fn new(tokenizer: &'a Tokenizer) -> Self {
        Self {
            tokenizer,
            tokens: Vec::new(),
            shown: 0,
        }
    }

    /// Takes a token, and returns the text that it completes. It is empty while a character is not whole.
    ///
    /// # Errors
    /// When the tokenizer's decoder refuses the token.
    pub fn push(&mut self, token: u32) -> Result<String> {
        self.tokens.push(token);
        let text = self.tokenizer.decode(&self.tokens)?;
        let whole = match self.tokens.len() > PATIENCE {
            true => text.len(),
            false => whole(&text),
        };
        let new = text.get(self.shown..whole).unwrap_or_default().to_owned();
        self.shown = self.shown.max(whole);
        if whole == text.len() {
            self.tokens = vec![token];
            self.shown = self.tokenizer.decode(&self.tokens)?.len();
        }
        Ok(new)
    }

    /// The bytes that still wait, each unfinished character as U+FFFD.
    ///
    /// # Errors
    /// When the tokenizer's decoder refuses the tokens.
    pub fn finish(self) -> Result<String> {
        let text = self.tokenizer.decode(&self.tokens)?;
        Ok(text.get(self.shown..).unwrap_or_default().to_owned())
    }
}

/// The length of a text without what may be the beginning of a character.
fn whole(text: &str) -> usize {
    let unfinished = text.chars().rev().take(UNFINISHED);
    let unfinished = unfinished.take_while(|&letter| letter == REPLACEMENT).count();
    text.len() - unfinished * REPLACEMENT.len_utf8()
}
