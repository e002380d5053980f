//! Generates text with a model, one token at a time.

use super::choice::Choice;
use crate::Result;
use crate::error::PromptProblem;
use crate::pipeline::Pipeline;
use crate::stages::{Sequential, rng};

/// A model and the text so far.
#[derive(Debug)]
pub(super) struct Generator {
    model: Pipeline<Sequential>,
    context: usize,
    choice: Choice,
    key: [u32; 2],
    tokens: Vec<u32>,
    /// Where the part of the text begins that the model sees, and how many tokens of it it has read.
    start: usize,
    read: usize,
}

impl Generator {
    /// A generator of a model that was made for texts of `context` tokens. `tokens` are the beginning of the
    /// text.
    pub(super) fn new(
        model: Pipeline<Sequential>,
        context: usize,
        choice: Choice,
        seed: u64,
        tokens: Vec<u32>,
    ) -> Self {
        Self {
            model,
            context,
            choice,
            key: rng::key(seed, "sample"),
            tokens,
            start: 0,
            read: 0,
        }
    }

    /// The next token, which is added to the text. If the text is longer than the model's context, the model
    /// goes on from the last half of it.
    pub(super) fn next(&mut self) -> Result<u32> {
        if self.tokens.len() - self.start > self.context {
            self.start = self.tokens.len() - self.context.div_ceil(2);
            self.read = 0;
        }
        let new = &self.tokens[self.start + self.read..];
        let mut scores = self.model.next_scores(self.read, new)?;
        self.read += new.len();
        let step = self.tokens.len() as u64;
        let draw = rng::unit(rng::philox(self.key, [step as u32, (step >> 32) as u32, 0, 0])[0]);
        let token = self.choice.token(&mut scores, &self.tokens, draw);
        self.tokens.push(token);
        Ok(token)
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
