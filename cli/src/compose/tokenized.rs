//! The tokenizer of a config, and the documents that it encodes.

use std::path::PathBuf;

use crate::config::{Config, Paths};
use crate::error::Result;
use pipewright::data::{Documents, Encoded, Form, Recipe};
use pipewright::pretrained::TOKENIZER;
use pipewright::tokenizer::{Tokenizer, told_of_tokenizer};

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

/// What is odd about the tokenizer of a config, for people: transformers makes other tokens with its files,
/// it makes other tokens than the tokenizer in the model's folder, or `data.template` writes chats otherwise
/// than its own template.
///
/// # Errors
/// As [`tokenizer`].
pub fn odd_tokenizer(config: &Config) -> Result<Vec<String>> {
    let (data, folder) = (&config.data, config.model.path.as_ref());
    let template = config.written_as().template;
    let mut odd = data.tokenizer.as_deref().map_or(Ok(Vec::new()), told_of_tokenizer)?;
    let of_model = folder.map(|folder| folder.join(TOKENIZER));
    let of_model = of_model.filter(|path| path.is_file() && data.tokenizer.as_ref() != Some(path));
    if template.is_none() && of_model.is_none() {
        return Ok(odd);
    }
    let Some(tokenizer) = tokenizer(config)? else {
        return Ok(odd);
    };
    if let Some(path) = of_model
        && !Tokenizer::read(&path)?.has_tokens_of(&tokenizer)
    {
        odd.push(format!(
            "the tokenizer `{}` makes other tokens than `{}`, which belongs to the model: leave \
             data.tokenizer out to take that one",
            tokenizer.path().display(),
            path.display()
        ));
    }
    if let Some((template, path)) = template.and_then(|one| Some((one, tokenizer.other_template(one)?))) {
        odd.push(format!(
            "data.template = \"{}\" writes chats otherwise than the tokenizer's own template, `{}`: leave \
             data.template out to take that one",
            template.name(),
            path.display()
        ));
    }
    Ok(odd)
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
        pairs: config.learns_pairs(),
        end_of_text: data.end_of_text.clone(),
        date: data.date,
    };
    Ok(Documents::encode(&paths.0, tokenizer, &recipe, &tokens_folder(config)?, tell)?)
}

/// The folder in which tokens are kept.
pub(super) fn tokens_folder(config: &Config) -> Result<PathBuf> {
    let cache = || Some(pipewright::stages::devices::cache_folder()?.join("tokens"));
    let folder = config.data.cache.clone().or_else(cache);
    folder.ok_or_else(|| {
        let problem = "no folder for tokens: name one, or set HOME or XDG_CACHE_HOME";
        config.refuse("data.cache", problem)
    })
}
