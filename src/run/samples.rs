//! What text a run writes while it trains, and how often; `samples.jsonl`, with a line for each text.

use std::fmt;
use std::path::PathBuf;

use pipewright_stages::Stage;
use serde::{Deserialize, Serialize};

use super::choice::Choice;
use super::directory::files::JsonLines;
use super::generator::Generator;
use crate::Result;
use crate::pipeline::Pipeline;

/// The text of tokens.
type AsText = Box<dyn Fn(&[u32]) -> Result<String>>;

/// What text a run writes while it trains, and how often. Default: 100 tokens, after the last step. It is
/// the same text for the same weights and seed, and writing it changes no weight.
pub struct Samples {
    prompt: Vec<u32>,
    context: usize,
    pub(super) every: u64,
    tokens: usize,
    choice: Choice,
    seed: u64,
    ends: Vec<u32>,
    as_text: AsText,
}

impl Samples {
    /// Texts that begin with the tokens of `prompt`, one or more, by a model that was made for texts of
    /// `context` tokens.
    pub fn new(prompt: Vec<u32>, context: usize) -> Self {
        Self {
            prompt,
            context,
            every: 0,
            tokens: 100,
            choice: Choice::default(),
            seed: 1,
            ends: Vec::new(),
            as_text: Box::new(|tokens| Ok(tokens.iter().map(|token| format!("{token} ")).collect())),
        }
    }

    /// Writes a text every `steps` steps, besides once after the last step. Default: 0, only after the last
    /// step.
    #[must_use]
    pub fn every(self, steps: u64) -> Self {
        Self { every: steps, ..self }
    }

    /// How many tokens follow the prompt. Default: 100.
    #[must_use]
    pub fn tokens(self, tokens: usize) -> Self {
        Self { tokens, ..self }
    }

    /// How each token is chosen.
    #[must_use]
    pub fn choice(self, choice: Choice) -> Self {
        Self { choice, ..self }
    }

    /// The seed of the random choices. All texts of a run begin with it. Default: 1.
    #[must_use]
    pub fn seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// The tokens at which a text ends before its time. Default: none.
    #[must_use]
    pub fn ends(self, ends: Vec<u32>) -> Self {
        Self { ends, ..self }
    }

    /// How tokens are written as text: the prompt, and the prompt with what follows it. Default: as numbers.
    #[must_use]
    pub fn as_text(self, as_text: impl Fn(&[u32]) -> Result<String> + 'static) -> Self {
        let as_text = Box::new(as_text);
        Self { as_text, ..self }
    }

    /// A text that names what is written. It must be equal in all processes.
    pub(super) fn described(&self) -> String {
        let Self { prompt, context, tokens, choice, seed, ends, .. } = self;
        format!("{tokens} tokens after {prompt:?} of {context}, {choice:?}, seed {seed}, up to {ends:?}")
    }

    /// Refuses what the pipeline cannot write, before a step is done.
    pub(super) fn check<S: Stage>(&self, pipeline: &mut Pipeline<S>) -> Result<()> {
        self.generator().next(pipeline).map(drop)
    }

    /// Writes a text.
    pub(super) fn write<S: Stage>(&self, pipeline: &mut Pipeline<S>) -> Result<Sample> {
        let mut generator = self.generator();
        let mut written = Vec::with_capacity(self.tokens);
        while written.len() < self.tokens {
            let token = generator.next(pipeline)?;
            if self.ends.contains(&token) {
                break;
            }
            written.push(token);
        }
        let prompt = (self.as_text)(&self.prompt)?;
        // What a token becomes may depend on the one before it.
        let whole = (self.as_text)(&[&self.prompt[..], &written].concat())?;
        let text = match whole.strip_prefix(&prompt) {
            Some(text) => text.to_owned(),
            None => (self.as_text)(&written)?,
        };
        Ok(Sample { step: pipeline.next_step(), prompt, text })
    }

    fn generator(&self) -> Generator {
        Generator::new(self.context, self.choice, self.seed, self.prompt.clone())
    }
}

impl fmt::Debug for Samples {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Samples")
            .field("every", &self.every)
            .field("tokens", &self.tokens)
            .finish_non_exhaustive()
    }
}

/// A text that a model wrote while it was trained.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Sample {
    /// The steps done.
    pub step: u64,
    /// The beginning of the text, which was given.
    pub prompt: String,
    /// How the model went on.
    pub text: String,
}

/// Opens the file of texts of a run that continues after `step` steps. Lines of later steps are removed.
pub(super) fn sample_file(path: PathBuf, step: u64) -> Result<JsonLines> {
    let is_later = |line: &[u8]| serde_json::from_slice::<Sample>(line).is_ok_and(|line| line.step > step);
    JsonLines::open(path, |line| !is_later(line))
}
