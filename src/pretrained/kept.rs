//! Keys of `config.json` that stay as they are while a model is trained.

use std::fs;
use std::path::Path;

use serde_json::{Map, Value};

use super::described::{CONFIG, Described};
use super::key::{Rule, named};
use crate::error::{Error, Result};

/// Adds to the `config.json` in `folder` what the one in `source` has besides its model: the numbers of the
/// tokens that begin, end and fill a text, dropout, and all that changes no number. A source without
/// `config.json`, or with one of another family, adds nothing.
///
/// # Errors
/// When a file cannot be read or written.
pub fn keep_keys(source: &Path, folder: &Path) -> Result<()> {
    if !source.join(CONFIG).is_file() {
        return Ok(());
    }
    let (from, to) = (Described::read(source)?, Described::read(folder)?);
    if from.family != to.family {
        return Ok(());
    }
    let mut keys = Map::new();
    for (name, value) in from.found.as_object().into_iter().flatten() {
        if stays(name, &from) {
            keys.insert(name.clone(), value.clone());
        }
    }
    let model = to.found.as_object().into_iter().flatten();
    let model = model.filter(|(name, _)| !is_token(name));
    keys.extend(model.map(|(name, value)| (name.clone(), value.clone())));
    let text = format!("{:#}\n", Value::Object(keys));
    fs::write(&to.path, text).map_err(Error::io("write", &to.path))
}

/// Whether a key names a token. A model that is written names none.
fn is_token(name: &str) -> bool {
    name.ends_with("_token_id")
}

/// Whether a key is none of the model's, and does not say in what its numbers were stored.
fn stays(name: &str, described: &Described) -> bool {
    let tables = described.tables();
    let rule = named(&tables).find(|(known, _)| known == name).map(|(_, key)| key.rule);
    match rule {
        Some(Rule::Used { .. }) => is_token(name),
        Some(Rule::Alias(_)) => false,
        _ => name != "torch_dtype",
    }
}
