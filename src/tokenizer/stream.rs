//! Tokens that become text one after the other.

use super::Tokenizer;
use crate::error::Result;

/// What a decoder writes for bytes that are not a whole character.
const REPLACEMENT: char = '\u{fffd}';

/// Text that grows by a token at a time. All that it shows is together what [`Tokenizer::decode`] makes of
/// all tokens at once: what the next tokens may still change waits for them.
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
        Self { tokenizer, tokens: Vec::new(), shown: 0 }
    }

    /// Takes a token, and returns the text that it completes. It is empty while a character is not whole.
    ///
    /// # Errors
    /// When the tokenizer's decoder refuses the token.
    pub fn push(&mut self, token: u32) -> Result<String> {
        let Some(name) = self.tokenizer.name(token) else {
            return Ok(String::new());
        };
        self.tokens.push(token);
        let decoder = self.tokenizer.decoder();
        if decoder.changes_whole || decoder.is_byte(&name) {
            return Ok(String::new());
        }
        let text = self.tokenizer.decode(&self.tokens)?;
        // Only the last character of a text may be the beginning of another one.
        let whole = text.strip_suffix(REPLACEMENT).map_or(text.len(), str::len);
        let new = text.get(self.shown..whole).unwrap_or_default().to_owned();
        self.shown = self.shown.max(whole);
        if whole == text.len() {
            self.forget(token)?;
        }
        Ok(new)
    }

    /// The text that still waits. Bytes that are no whole character are U+FFFD in it.
    ///
    /// # Errors
    /// When the tokenizer's decoder refuses the tokens.
    pub fn finish(self) -> Result<String> {
        let text = self.tokenizer.decode(&self.tokens)?;
        Ok(text.get(self.shown..).unwrap_or_default().to_owned())
    }

    /// Keeps only the last token, unless it is nothing by itself, as a space at the beginning of a text may
    /// be.
    fn forget(&mut self, last: u32) -> Result<()> {
        let alone = self.tokenizer.decode(&[last])?;
        if !alone.is_empty() {
            self.tokens = vec![last];
            self.shown = alone.len();
        }
        Ok(())
    }
}
