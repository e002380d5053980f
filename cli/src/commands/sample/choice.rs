//! The arguments that say how the next token is chosen.

use crate::{Error, Result};
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
        let Self { temperature, top_k, top_p, repetition_penalty } = self;
        let problem = if !(temperature >= 0.0 && temperature.is_finite()) {
            format!("--temperature {temperature}: it must be 0 or more")
        } else if top_k == Some(0) {
            "--top-k 0: it must be 1 or more".to_owned()
        } else if !(top_p > 0.0 && top_p <= 1.0) {
            format!("--top-p {top_p}: it must be above 0, and 1 at most")
        } else if !(repetition_penalty > 0.0 && repetition_penalty.is_finite()) {
            format!("--repetition-penalty {repetition_penalty}: it must be above 0; 1 changes nothing")
        } else {
            return Ok(Choice { temperature, top_k, top_p, repetition_penalty });
        };
        Err(Error::refused(problem))
    }
}
