//! The tokenizer of a config, and the documents that it encodes.

use crate::config::{Config, Paths};
use crate::data::{Documents, Encoded, Form, Recipe};
use crate::error::{Result, ValueProblem};
use crate::tokenizer::Tokenizer;

/// The tokenizer that a config names, if it names one.
///
/// # Errors
/// When it cannot be read, or when it has more tokens than the model knows.
pub fn tokenizer(config: &Config) -> Result<Option<Tokenizer>> {
    let Some(path) = &config.data.tokenizer else {
        return Ok(None);
    };
    let tokenizer = Tokenizer::read(path)?;
    tokenizer.check_vocabulary(config.model.vocab)?;
    Ok(Some(tokenizer))
}

/// The documents of these files as tokens, encoded as a config says.
pub(super) fn documents(
    config: &Config,
    paths: &Paths,
    form: Form,
    tokenizer: &Tokenizer,
    tell: &mut dyn FnMut(Encoded),
) -> Result<Documents> {
    let data = &config.data;
    let recipe = Recipe {
        form,
        field: data.field.clone(),
        template: data.template,
        loss_on: data.loss_on,
        end_of_text: data.end_of_text.clone(),
    };
    let cache = || Some(pipewright_stages::devices::cache_folder()?.join("tokens"));
    let folder = data.cache.clone().or_else(cache);
    let folder = folder.ok_or_else(|| config.refuse("data.cache", ValueProblem::NoCacheFolder))?;
    Documents::encode(&paths.0, tokenizer, &recipe, &folder, tell)
}
