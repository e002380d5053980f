//! What a folder has besides a model's weights and settings, so that it reads and writes text.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::config::Config;
use crate::error::{Error, Result};
use pipewright::pretrained::{self, GENERATION, TOKENIZER, keep_keys};
use pipewright::tokenizer::{Template, Tokenizer, told_of_tokenizer};

/// What stands beside a `tokenizer.json`.
const OF_TOKENIZER: [&str; 8] = [
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
    GENERATION,
];

/// What stands beside a model's weights, and is of the model.
const OF_MODEL: [&str; 2] = [GENERATION, "LICENSE"];

/// Puts what belongs to a trained model beside its weights: the tokenizer of its run, with all that stands
/// beside it, and what stands beside the weights that training started from, with those keys of its settings
/// that stay. Returns warnings: there is no tokenizer where the run had one, or transformers reads it
/// by other rules.
pub(super) fn put(config: &Config, folder: &Path) -> Result<Vec<String>> {
    let (mut warnings, mut end_of_answer) = (Vec::new(), None);
    if let Some(path) = &config.data.tokenizer {
        match Tokenizer::read(path) {
            Ok(tokenizer) => {
                put_tokenizer(config, &tokenizer, folder)?;
                end_of_answer = tokenizer.end_of_answer(config.written_as().template);
            }
            Err(error) => warnings.push(format!("the folder gets no tokenizer: {error}")),
        }
    }
    if let Some(source) = &config.model.path {
        copy(source, folder, &OF_MODEL)?;
        keep_keys(source, folder)?;
    }
    if let Some(token) = end_of_answer.filter(|_| may_be_chats(config)) {
        add_end(folder, token)?;
    }
    if folder.join(TOKENIZER).is_file() {
        warnings.extend(told_of_tokenizer(folder)?);
    }
    Ok(warnings)
}

/// Whether the documents of a run may have been chats.
fn may_be_chats(config: &Config) -> bool {
    config.written_as().kind.has_documents()
}

/// Adds a token that ends a text to those in the `generation_config.json` of a folder.
fn add_end(folder: &Path, token: u32) -> Result<()> {
    let path = folder.join(GENERATION);
    let mut ends = pretrained::ends(folder)?;
    let mut generation = json!({});
    if path.is_file() {
        let bytes = fs::read(&path).map_err(Error::io("read", &path))?;
        generation = serde_json::from_slice::<Value>(&bytes)
            .map_err(|source| pipewright::Error::no_json(&path, source))?;
    }
    if !ends.contains(&token) {
        ends.push(token);
    }
    generation["eos_token_id"] = match ends[..] {
        [end] => json!(end),
        _ => json!(ends),
    };
    write(folder, GENERATION, &format!("{generation:#}\n"))
}

fn put_tokenizer(config: &Config, tokenizer: &Tokenizer, folder: &Path) -> Result<()> {
    let path = tokenizer.path();
    fs::copy(path, folder.join("tokenizer.json")).map_err(Error::io("copy", path))?;
    copy(path.parent().unwrap_or(path), folder, &OF_TOKENIZER)?;
    let template = config.written_as().template.or_else(|| usual_template(config, tokenizer));
    if let Some(template) = template {
        write(folder, "chat_template.jinja", template.source())?;
    }
    let end = tokenizer.end_of_text(config.written_as().end_of_text.as_deref()).ok();
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
    if config.model.path.is_none() && !folder.join(GENERATION).exists() {
        let mut generation = json!({});
        for (key, token) in [("bos_token_id", begin), ("eos_token_id", end)] {
            if let Some(token) = token {
                generation[key] = json!(token);
            }
        }
        write(folder, GENERATION, &format!("{generation:#}\n"))?;
    }
    Ok(())
}

/// The template by which chats were written if neither the config nor the tokenizer has one.
fn usual_template(config: &Config, tokenizer: &Tokenizer) -> Option<Template> {
    let is_usual = may_be_chats(config) && !tokenizer.has_template() && tokenizer.chat(None).is_ok();
    is_usual.then_some(Template::default())
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
