//! The tokens of a prompt, and the text of tokens.

use std::ops::Range;

use super::source::Text;
use crate::Result;
use crate::compose::Writing;
use crate::error::Error;
use pipewright::tokenizer::{TextStream, Tokenizer};

/// How a model's tokens are read and shown.
pub(in crate::commands) enum Words<'a> {
    /// A token is a byte.
    Bytes,
    /// Tokens are numbers.
    Numbers,
    /// Tokens are what a tokenizer makes of text.
    Tokenizer(&'a Tokenizer, TextStream<'a>, &'a Text),
}

/// The beginning of a text.
pub(in crate::commands) struct Prompt {
    /// The tokens that the model reads.
    pub(in crate::commands) tokens: Vec<u32>,
    /// Which of the tokens are shown: not what a tokenizer or a template adds.
    pub(in crate::commands) shown: Range<usize>,
}

impl<'a> Words<'a> {
    /// The words of a model.
    pub(in crate::commands) fn of(text: &'a Text) -> Self {
        match &text.tokenizer {
            Some(tokenizer) => Self::Tokenizer(tokenizer, TextStream::new(tokenizer), text),
            None if text.is_bytes => Self::Bytes,
            None => Self::Numbers,
        }
    }

    /// The beginning of a text that was given, or of one for which nothing was given. `refuse` says where it
    /// was given.
    pub(in crate::commands) fn prompt(
        &self,
        prompt: Option<&str>,
        refuse: impl Fn(String) -> Error,
    ) -> Result<Prompt> {
        let tokens = match (self, prompt) {
            (Self::Bytes, prompt) => prompt.unwrap_or("\n").bytes().map(u32::from).collect(),
            (Self::Numbers, Some(prompt)) => tokens_of(prompt).map_err(refuse)?,
            (Self::Numbers, None) => {
                let problem =
                    "this model reads tokens: give the numbers that the text begins with, such as \"17 4\"";
                return Err(refuse(problem.to_owned()));
            }
            (Self::Tokenizer(tokenizer, ..), Some(prompt)) => {
                let tokens = tokenizer.encode(prompt)?;
                let [begin, end] = tokenizer.around();
                let shown = begin.len()..tokens.len() - end.len();
                return Ok(Prompt { tokens, shown });
            }
            (Self::Tokenizer(tokenizer, ..), None) if !tokenizer.around()[0].is_empty() => {
                let tokens = tokenizer.around()[0].to_vec();
                return Ok(Prompt { tokens, shown: 0..0 });
            }
            (Self::Tokenizer(tokenizer, _, text), None) => {
                match tokenizer.end_of_text(text.end_of_text.as_deref()) {
                    Ok(end) => vec![end],
                    Err(_) => tokenizer.encode_bare("\n")?,
                }
            }
        };
        let shown = 0..tokens.len();
        Ok(Prompt { tokens, shown })
    }

    /// What is written for the next token.
    pub(in crate::commands) fn show(&mut self, token: u32) -> Result<Vec<u8>> {
        Ok(match self {
            Self::Bytes => vec![token as u8],
            Self::Numbers => format!("{token} ").into_bytes(),
            Self::Tokenizer(_, stream, _) => stream.push(token)?.into_bytes(),
        })
    }

    /// What still waits for the rest of a character.
    pub(in crate::commands) fn finish(self) -> Result<Vec<u8>> {
        match self {
            Self::Tokenizer(_, stream, _) => Ok(stream.finish()?.into_bytes()),
            Self::Bytes | Self::Numbers => Ok(Vec::new()),
        }
    }
}

/// Whether a text is longer than what a model can read at once: its last token is not read.
pub(in crate::commands) fn exceeds(context: usize, prompt: usize, more: usize) -> bool {
    prompt + more > context + 1
}

/// Refuses a beginning of a text that a model cannot read.
pub(in crate::commands) fn check_prompt(
    prompt: &[u32],
    Writing { vocab, context }: Writing,
) -> Result<(), String> {
    let tokens = prompt.len();
    if prompt.is_empty() {
        return Err("it is empty: a text begins with one token at least".to_owned());
    }
    if tokens > context {
        return Err(format!(
            "it has {tokens} tokens, and the model's context is {context}: shorten it by {} or more",
            tokens - context
        ));
    }
    match prompt.iter().find(|&&token| token as usize >= vocab) {
        Some(token) => Err(format!("token {token} is outside the model's vocabulary of {vocab}")),
        None => Ok(()),
    }
}

fn tokens_of(prompt: &str) -> Result<Vec<u32>, String> {
    let no_token = |token| format!("`{token}` is no token: give numbers such as \"17 4\"");
    prompt.split_whitespace().map(|token| token.parse().map_err(|_| no_token(token))).collect()
}
