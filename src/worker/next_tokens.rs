//! Tokens that follow others of the same text.

use pipewright_stages::Tensor;

use crate::error::Result;

/// Tokens that follow others of the same text.
#[derive(Debug)]
pub(crate) struct NextTokens {
    /// How many tokens come before them.
    pub(crate) past: usize,
    /// The tokens.
    pub(crate) tokens: Vec<u32>,
}

impl NextTokens {
    /// The first stage's input: ids `[1, tokens]`.
    pub(super) fn input(&self) -> Result<Tensor> {
        Ok(Tensor::from_ids(&[1, self.tokens.len()], self.tokens.clone())?)
    }
}
