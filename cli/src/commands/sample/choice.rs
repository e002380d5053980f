//! The arguments that say how the next token is chosen.

use crate::Result;
use crate::error::CommandError;
use pipewright::run::Choice;

/// How the next token is chosen.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(super) struct ChoiceArgs {
    /// How random the choice of each token is: 0 always takes the most likely token, 1 follows the model's
    /// probabilities, larger values are more random
    #[arg(long, default_value_t = 0.8, value_name = "T", allow_negative_numbers = true)]
    temperature: f32,
    /// Choose only among this many most likely tokens
    #[arg(long, value_name = "K")]
    top_k: Option<usize>,
    /// Choose only among the most likely tokens that have this share of the probability together
    #[arg(long, default_value_t = 1.0, value_name = "P", allow_negative_numbers = true)]
    top_p: f32,
    /// Make tokens that were read or written less likely: positive scores are divided by this, negative ones
    /// are multiplied; 1 changes nothing
    #[arg(long, default_value_t = 1.0, value_name = "X", allow_negative_numbers = true)]
    repetition_penalty: f32,
}

impl ChoiceArgs {
    /// The choice, if these can be followed.
    pub(super) fn checked(self) -> Result<Choice> {
        if !(self.temperature >= 0.0 && self.temperature.is_finite()) {
            return Err(CommandError::Temperature(self.temperature).into());
        }
        if self.top_k == Some(0) {
            return Err(CommandError::TopK.into());
        }
        if !(self.top_p > 0.0 && self.top_p <= 1.0) {
            return Err(CommandError::TopP(self.top_p).into());
        }
        let penalty = self.repetition_penalty;
        if !(penalty > 0.0 && penalty.is_finite()) {
            return Err(CommandError::RepetitionPenalty(penalty).into());
        }
        Ok(Choice {
            temperature: self.temperature,
            top_k: self.top_k,
            top_p: self.top_p,
            repetition_penalty: penalty,
        })
    }
}
