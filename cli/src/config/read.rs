//! Reads a typed section from the values that were set. A value that does not fit is an error.

use serde::de::DeserializeOwned;
use toml::{Table, Value};

use super::keys;
use super::tree::{Entry, Tree};
use super::typed::{Given, Mismatch};
use crate::error::ConfigError;
use pipewright::nearest::nearest;

/// Reads a section. Keys that were not set have their defaults.
pub(super) fn section<T: DeserializeOwned>(tree: &Tree, name: &str) -> Result<T, ConfigError> {
    let mut table = Table::new();
    for (key, entry) in tree.section(name) {
        if keys::find(name, key).is_none() {
            return Err(keys::unknown(name, key, &entry.origin));
        }
        table.insert(key.to_owned(), value::<T>(name, key, entry)?);
    }
    let read = T::deserialize(Given(&Value::Table(table)));
    Ok(read.expect("checked: each key's value fits, and no key depends on another"))
}

/// The value, if the section accepts it for this key. A value from outside of a file is also tried as text
/// without quotes.
fn value<T: DeserializeOwned>(section: &str, key: &str, entry: &Entry) -> Result<Value, ConfigError> {
    let fits = |value: &Value| {
        let table = Value::Table(Table::from_iter([(key.to_owned(), value.clone())]));
        T::deserialize(Given(&table)).map(|_| ())
    };
    let Err(mismatch) = fits(&entry.value) else {
        return Ok(entry.value.clone());
    };
    if let Some(text) = entry.text.clone().map(Value::String)
        && fits(&text).is_ok()
    {
        return Ok(text);
    }
    Err(ConfigError::Value {
        origin: Some(entry.origin.clone()),
        key: format!("{section}.{key}"),
        problem: Box::new(wrong_type(section, key, mismatch, &entry.value).into()),
    })
}

/// Says what was expected, in the words of a config and not in Rust's.
fn wrong_type(section: &str, key: &str, mismatch: Mismatch, got: &Value) -> String {
    let choices = match &mismatch {
        Mismatch::NoChoice(choices) => choices,
        Mismatch::Expected(_) => &[][..],
    };
    let listed = got.as_array().map_or(std::slice::from_ref(got), Vec::as_slice);
    let words = listed.iter().filter_map(Value::as_str);
    let mut wrong = words.filter(|word| !choices.contains(word));
    let is_too_large = |text: &str| text.parse::<u128>().is_ok_and(|number| number > i64::MAX as u128);
    let row = keys::find(section, key);
    let instead = || listed.iter().find_map(|value| row?.instead_of(value));
    let mut nearest = || wrong.find_map(|word| nearest(word, choices.iter().copied()));
    let advice = match instead() {
        Some(instead) => format!(": {instead}"),
        None => nearest().map_or(String::new(), |word| format!(": did you mean \"{word}\"?")),
    };
    let expected = match got.as_str().is_some_and(is_too_large) {
        true => format!("a whole number from 0 to {}, the largest in TOML", i64::MAX),
        false => mismatch.in_words(),
    };
    format!("expected {expected}, got {got}{advice}")
}
