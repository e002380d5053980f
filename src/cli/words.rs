//! The tokens of a prompt, and the text of tokens.

use super::source::Text;
use crate::Result;
use crate::error::{CommandError, PromptProblem};
use crate::tokenizer::{TextStream, Tokenizer};

/// How a model's tokens are read and shown.
pub(super) enum Words<'a> {
    /// A token is a byte.
    Bytes,
    /// Tokens are numbers.
    Numbers,
    /// Tokens are what a tokenizer makes of text.
    Tokenizer(&'a Tokenizer, TextStream<'a>, &'a Text),
}

impl<'a> Words<'a> {
    /// The words of a model.
    pub(super) fn of(text: &'a Text) -> Self {
        match &text.tokenizer {
            Some(tokenizer) => Self::Tokenizer(tokenizer, TextStream::new(tokenizer), text),
            None if text.is_bytes => Self::Bytes,
            None => Self::Numbers,
        }
    }

    /// The tokens of a prompt, or of a question in a chat.
    pub(super) fn prompt(&self, prompt: Option<&str>, chat: bool) -> Result<Vec<u32>> {
        match (self, prompt) {
            (Self::Bytes | Self::Numbers, _) if chat => Err(CommandError::NoChat.into()),
            (Self::Bytes, Some(prompt)) => Ok(prompt.bytes().map(u32::from).collect()),
            (Self::Bytes, None) => Ok(vec![u32::from(b'\n')]),
            (Self::Numbers, Some(prompt)) => tokens_of(prompt),
            (Self::Numbers, None) => Err(PromptProblem::Missing.into()),
            (Self::Tokenizer(tokenizer, _, text), Some(prompt)) if chat => {
                tokenizer.encode(&text.template.question(prompt))
            }
            (Self::Tokenizer(tokenizer, ..), Some(prompt)) => tokenizer.encode(prompt),
            (Self::Tokenizer(tokenizer, _, text), None) => {
                Ok(vec![tokenizer.end_of_text(text.end_of_text.as_deref())?])
            }
        }
    }

    /// What is written for the next token.
    pub(super) fn show(&mut self, token: u32) -> Result<Vec<u8>> {
        Ok(match self {
            Self::Bytes => vec![token as u8],
            Self::Numbers => format!("{token} ").into_bytes(),
            Self::Tokenizer(_, stream, _) => stream.push(token)?.into_bytes(),
        })
    }

    /// What still waits for the rest of a character.
    pub(super) fn finish(self) -> Result<Vec<u8>> {
        match self {
            Self::Tokenizer(_, stream, _) => Ok(stream.finish()?.into_bytes()),
            Self::Bytes | Self::Numbers => Ok(Vec::new()),
        }
    }
}

/// Refuses a beginning of a text that a model with this vocabulary cannot read.
pub(super) fn check_prompt(prompt: &[u32], vocab: usize) -> Result<()> {
    if prompt.is_empty() {
        return Err(PromptProblem::Empty.into());
    }
    match prompt.iter().find(|&&token| token as usize >= vocab) {
        Some(&token) => Err(PromptProblem::OutsideVocabulary { token, vocab }.into()),
        None => Ok(()),
    }
}

fn tokens_of(prompt: &str) -> Result<Vec<u32>> {
    let tokens = prompt.split_whitespace().map(|token| {
        let number = token.parse();
        number.map_err(|_| PromptProblem::NotANumber(token.to_owned()).into())
    });
    tokens.collect()
}
