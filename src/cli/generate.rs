//! Generates text with a model, one token at a time.

use crate::Result;
use crate::error::{CommandError, PromptProblem};
use crate::stages::{ForwardContext, Mode, Sequential, Stage, Tensor, rng};

/// How the next token is chosen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sampling {
    temperature: f32,
    top_k: Option<usize>,
}

impl Sampling {
    pub(super) fn new(temperature: f32, top_k: Option<usize>) -> Result<Self> {
        if !(temperature >= 0.0 && temperature.is_finite()) {
            return Err(CommandError::Temperature(temperature).into());
        }
        if top_k == Some(0) {
            return Err(CommandError::TopK.into());
        }
        Ok(Self { temperature, top_k })
    }

    /// The token for a random number from `[0, 1)`.
    fn token(self, logits: &[f32], draw: f32) -> u32 {
        let mut order: Vec<u32> = (0..logits.len() as u32).collect();
        order.sort_by(|&a, &b| logits[b as usize].total_cmp(&logits[a as usize]));
        if self.temperature == 0.0 {
            return order[0];
        }
        order.truncate(self.top_k.unwrap_or(logits.len()));
        let highest = logits[order[0] as usize];
        let weight = |&token: &u32| f64::from((logits[token as usize] - highest) / self.temperature).exp();
        let mut left = f64::from(draw) * order.iter().map(weight).sum::<f64>();
        let chosen = order.iter().find(|token| {
            left -= weight(token);
            left < 0.0
        });
        *chosen.unwrap_or(&order[0])
    }
}

/// A model and the text so far.
#[derive(Debug)]
pub(super) struct Generator {
    model: Sequential,
    vocab: usize,
    context: usize,
    sampling: Sampling,
    key: [u32; 2],
    tokens: Vec<u32>,
}

impl Generator {
    pub(super) fn new(
        model: Sequential,
        vocab: usize,
        context: usize,
        sampling: Sampling,
        seed: u64,
    ) -> Self {
        Self {
            model,
            vocab,
            context,
            sampling,
            key: rng::key(seed, "sample"),
            tokens: Vec::new(),
        }
    }

    /// Reads the beginning of the text.
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

    /// The next token, which is added to the text. The model reads only the end of the text, as much as fits
    /// its context.
    pub(super) fn next(&mut self) -> Result<u32> {
        let step = self.tokens.len() as u64;
        let seen = &self.tokens[self.tokens.len().saturating_sub(self.context)..];
        // The input is padded at its end to one of few lengths, because buffers are pooled by length. Causal
        // attention does not see the padding.
        let length = seen.len().next_power_of_two().min(self.context);
        let mut ids = seen.to_vec();
        ids.resize(length, seen[0]);
        let input = Tensor::from_ids(&[1, length], ids)?;
        let at = ForwardContext {
            step,
            micro_batch: 0,
            mode: Mode::Evaluate,
        };
        let (logits, _) = self.model.forward(at, input)?;
        let last = &logits.f32()[(seen.len() - 1) * self.vocab..][..self.vocab];
        let draw = rng::unit(rng::philox(self.key, [step as u32, (step >> 32) as u32, 0, 0])[0]);
        let token = self.sampling.token(last, draw);
        self.tokens.push(token);
        Ok(token)
    }
}
