//! Generates text with a model, one token at a time.

use super::choice::Choice;
use crate::Result;
use crate::error::PromptProblem;
use crate::stages::{Sequential, Tensor, rng};

/// A model and the text so far.
#[derive(Debug)]
pub(super) struct Generator {
    model: Sequential,
    vocab: usize,
    context: usize,
    choice: Choice,
    key: [u32; 2],
    tokens: Vec<u32>,
    /// Where the part of the text begins that the model sees, and how many tokens of it it has read.
    start: usize,
    read: usize,
}

impl Generator {
    /// A generator of a model that was made for texts of `context` tokens.
    pub(super) fn new(model: Sequential, vocab: usize, context: usize, choice: Choice, seed: u64) -> Self {
        Self {
            model,
            vocab,
            context,
            choice,
            key: rng::key(seed, "sample"),
            tokens: Vec::new(),
            start: 0,
            read: 0,
        }
    }

    /// Takes the beginning of the text.
    pub(super) fn read(&mut self, prompt: &[u32]) -> Result<()> {
        if prompt.is_empty() {
            return Err(PromptProblem::Empty.into());
        }
        let vocab = self.vocab;
        if let Some(&token) = prompt.iter().find(|&&token| token as usize >= vocab) {
            return Err(PromptProblem::OutsideVocabulary { token, vocab }.into());
        }
        self.tokens.extend_from_slice(prompt);
        Ok(())
    }

    /// The next token, which is added to the text. If the text is longer than the model's context, the model
    /// goes on from the last half of it.
    pub(super) fn next(&mut self) -> Result<u32> {
        if self.tokens.len() - self.start > self.context {
            self.start = self.tokens.len() - self.context.div_ceil(2);
            self.read = 0;
        }
        let new = self.tokens[self.start + self.read..].to_vec();
        let count = new.len();
        let scores = self
            .model
            .forward_next(self.read, Tensor::from_ids(&[1, count], new)?)?;
        self.read += count;
        let step = self.tokens.len() as u64;
        let draw = rng::unit(rng::philox(self.key, [step as u32, (step >> 32) as u32, 0, 0])[0]);
        let mut scores = scores.f32().to_vec();
        let token = self.choice.token(&mut scores, &self.tokens, draw);
        self.tokens.push(token);
        Ok(token)
    }
}
