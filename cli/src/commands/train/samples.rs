//! The text that a run writes while it trains.

use crate::commands::processes::Role;
use crate::commands::sample::source::Text;
use crate::commands::sample::words::{Words, check_prompt, exceeds};
use crate::compose;
use crate::config::Config;
use crate::error::Result;
use pipewright::run::{Choice, Samples};
use pipewright::tokenizer::Tokenizer;

/// What text the run of a config writes, if it writes any. Warns where texts are longer than the context.
///
/// # Errors
/// When the model cannot write, or cannot go on from the prompt.
pub(super) fn samples(config: &Config, role: Role) -> Result<Option<Samples>> {
    let train = &config.train;
    if train.sample_every == 0 {
        return Ok(None);
    }
    let writing = compose::writing(config)
        .map_err(|why| config.refuse("train.sample_every", format!("{why}; set it to 0")))?;
    let text = Text::of_config(config)?;
    let refuse = |problem: String| config.refuse("train.sample_prompt", problem);
    let prompt = Words::of(&text).prompt(train.sample_prompt.as_deref(), refuse)?.tokens;
    check_prompt(&prompt, writing).map_err(refuse)?;
    if role.leads() && exceeds(writing.context, prompt.len(), train.sample_tokens) {
        crate::commands::warn([format!(
            "train.sample_tokens: {} tokens after a prompt of {} are more than the model's context of {}: \
             the end of each text is written after the last half of a context only",
            train.sample_tokens,
            prompt.len(),
            writing.context
        )]);
    }
    let choice = Choice { temperature: train.sample_temperature as f32, ..Choice::default() };
    let samples = Samples::new(prompt, writing.context)
        .every(train.sample_every)
        .tokens(train.sample_tokens)
        .choice(choice)
        .seed(train.sample_seed)
        .ends(text.ends.clone())
        .as_text(move |tokens| Ok(text_of(&text, tokens)?));
    Ok(Some(samples))
}

fn text_of(text: &Text, tokens: &[u32]) -> Result<String> {
    let (mut words, mut bytes) = (Words::of(text), Vec::new());
    let [begin, _] = text.tokenizer.as_ref().map_or([&[][..]; 2], Tokenizer::around);
    for &token in tokens.strip_prefix(begin).unwrap_or(tokens) {
        bytes.extend(words.show(token)?);
    }
    bytes.extend(words.finish()?);
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
