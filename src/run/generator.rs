//! A text that a model writes, one token at a time.

use pipewright_stages::{Stage, rng};

use super::choice::Choice;
use crate::Result;
use crate::pipeline::Pipeline;

/// A text so far, and how it goes on.
#[derive(Debug)]
pub struct Generator {
    context: usize,
    choice: Choice,
    key: [u32; 2],
    tokens: Vec<u32>,
    /// Where the part of the text begins that the model sees, and how many tokens of it it has read.
    start: usize,
    read: usize,
}

impl Generator {
    /// A text for a model that was made for texts of `context` tokens. `tokens` are its beginning.
    pub fn new(context: usize, choice: Choice, seed: u64, tokens: Vec<u32>) -> Self {
        Self { context, choice, key: rng::key(seed, "sample"), tokens, start: 0, read: 0 }
    }

    /// The same text for a model that has read its first `count` tokens and nothing since: it does not read
    /// them again. The last token is always read.
    #[must_use]
    pub fn after(mut self, count: usize) -> Self {
        self.read = count.min(self.tokens.len().saturating_sub(1));
        self
    }

    /// What the model has read of the text, from its beginning. Nothing, if the text was longer than the
    /// context.
    pub fn known(&self) -> &[u32] {
        if self.start == 0 { &self.tokens[..self.read] } else { &[] }
    }

    /// The next token, which is added to the text. If the text is longer than the model's context, the model
    /// goes on from the last half of it.
    ///
    /// # Errors
    /// As for [`Pipeline::next_scores`].
    pub fn next<S: Stage>(&mut self, model: &mut Pipeline<S>) -> Result<u32> {
        self.next_of(model).map(|(token, _)| token)
    }

    /// The same, with the scores of all tokens that the model gave, from which it was chosen.
    ///
    /// # Errors
    /// As for [`Pipeline::next_scores`].
    pub fn next_of<S: Stage>(&mut self, model: &mut Pipeline<S>) -> Result<(u32, Vec<f32>)> {
        if self.tokens.len() - self.start > self.context {
            self.start = self.tokens.len() - self.context.div_ceil(2);
            self.read = 0;
        }
        let new = &self.tokens[self.start + self.read..];
        let scores = model.next_scores(self.read, new)?;
        self.read += new.len();
        let step = self.tokens.len() as u64;
        let draw = rng::unit(rng::philox(self.key, [step as u32, (step >> 32) as u32, 0, 0])[0]);
        let token = self.choice.token(&mut scores.clone(), &self.tokens, draw);
        self.tokens.push(token);
        Ok((token, scores))
    }
}
