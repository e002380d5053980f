//! What a folder has besides a model's weights and settings, so that it reads and writes text.

use std::fs;
use std::path::Path;

use serde_json::json;

use crate::config::Config;
use crate::error::{Error, Result};
use crate::pretrained::keep_keys;
use crate::tokenizer::Tokenizer;

/// What stands beside a `tokenizer.json`.
const OF_TOKENIZER: [&str; 8] = [
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
    "generation_config.json",
];

/// What stands beside a model's weights, and is of the model.
const OF_MODEL: [&str; 2] = ["generation_config.json", "LICENSE"];

/// Puts what belongs to a trained model beside its weights: the tokenizer of its run, with all that stands
/// beside it, and what stands beside the weights that training started from, with those keys of its settings
/// that stay. Returns a warning if there is no tokenizer where the run had one.
pub(super) fn put(config: &Config, folder: &Path) -> Result<Option<String>> {
    let mut missing = None;
    if let Some(path) = &config.data.tokenizer {
        match Tokenizer::read(path) {
            Ok(tokenizer) => put_tokenizer(config, &tokenizer, folder)?,
            Err(error) => missing = Some(format!("the folder gets no tokenizer: {error}")),
        }
    }
    if let Some(source) = &config.model.path {
        copy(source, folder, &OF_MODEL)?;
        keep_keys(source, folder)?;
    }
    Ok(missing)
}

fn put_tokenizer(config: &Config, tokenizer: &Tokenizer, folder: &Path) -> Result<()> {
    let path = tokenizer.path();
    fs::copy(path, folder.join("tokenizer.json")).map_err(Error::io("copy", path))?;
    copy(path.parent().unwrap_or(path), folder, &OF_TOKENIZER)?;
    if let Some(template) = config.data.template {
        write(folder, "chat_template.jinja", template.source())?;
    }
    let end = tokenizer.end_of_text(config.data.end_of_text.as_deref()).ok();
    let named = |token: u32| tokenizer.decode(&[token]);
    let begin = tokenizer.around()[0].first().copied();
    if !folder.join("tokenizer_config.json").exists() {
        let mut about = json!({"tokenizer_class": "PreTrainedTokenizerFast"});
        for (key, token) in [("bos_token", begin), ("eos_token", end)] {
            if let Some(token) = token {
                about[key] = json!(named(token)?);
            }
        }
        write(folder, "tokenizer_config.json", &format!("{about:#}\n"))?;
    }
    if config.model.path.is_none() && !folder.join("generation_config.json").exists() {
        let mut generation = json!({});
        for (key, token) in [("bos_token_id", begin), ("eos_token_id", end)] {
            if let Some(token) = token {
                generation[key] = json!(token);
            }
        }
        write(folder, "generation_config.json", &format!("{generation:#}\n"))?;
    }
    Ok(())
}

fn write(folder: &Path, name: &str, text: &str) -> Result<()> {
    let path = folder.join(name);
    fs::write(&path, text).map_err(Error::io("write", &path))
}

fn copy(source: &Path, folder: &Path, names: &[&str]) -> Result<()> {
    for name in names {
        let from = source.join(name);
        if from.is_file() {
            fs::copy(&from, folder.join(name)).map_err(Error::io("copy", &from))?;
        }
    }
    Ok(())
}
