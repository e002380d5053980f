//! From what was set to a typed section, with a message for what does not fit.

use serde::de::DeserializeOwned;
use toml::{Table, Value};

use super::keys;
use super::tree::{Entry, Tree};
use crate::error::{Error, Result};
use crate::nearest::nearest;

/// Reads a section; keys that nobody set have their defaults.
pub(super) fn section<T: DeserializeOwned>(tree: &Tree, name: &str) -> Result<T> {
    let known = keys::of::<T>();
    let mut table = Table::new();
    for (key, entry) in tree.section(name) {
        if !known.contains(&key) {
            return Err(keys::unknown(name, key, &entry.origin, known));
        }
        table.insert(key.to_owned(), value::<T>(name, key, entry)?);
    }
    T::deserialize(table).map_err(|error| Error::Invalid(format!("[{name}]: {}", error.message())))
}

/// The value, when the section takes it for this key. What stood in no file is also tried as text without
/// quotes.
fn value<T: DeserializeOwned>(section: &str, key: &str, entry: &Entry) -> Result<Value> {
    let fits = |value: &Value| T::deserialize(Table::from_iter([(key.to_owned(), value.clone())]));
    let Err(error) = fits(&entry.value) else {
        return Ok(entry.value.clone());
    };
    if let Some(text) = entry.text.clone().map(Value::String)
        && fits(&text).is_ok()
    {
        return Ok(text);
    }
    let (origin, problem) = (&entry.origin, in_words(error.message(), &entry.value));
    Err(Error::Invalid(format!("{origin}: {section}.{key}: {problem}")))
}

/// Says what was expected in the words of a config instead of those of Rust.
fn in_words(message: &str, value: &Value) -> String {
    let message = message.trim();
    let expected = message
        .rsplit_once("expected ")
        .map_or(message, |(_, expected)| expected);
    let words = match expected {
        "usize" | "u64" => "a whole number, 0 or more",
        "u32" => "a whole number from 0 to 4294967295",
        "f64" => "a number",
        "a boolean" => "true or false",
        "a string" | "path string" => "text in quotes",
        "a tuple of size 2" => "a list of two numbers",
        "socket address" | "invalid socket address syntax" => {
            "an address and a port such as \"127.0.0.1:9400\""
        }
        other => other,
    };
    let choices: Vec<&str> = expected.split('`').skip(1).step_by(2).collect();
    let listed = value
        .as_array()
        .map_or(std::slice::from_ref(value), Vec::as_slice);
    let mut wrong = listed
        .iter()
        .filter_map(Value::as_str)
        .filter(|word| !choices.contains(word));
    let meant = wrong.find_map(|word| nearest(word, choices.iter().copied()));
    let meant = meant.map_or(String::new(), |word| format!(": did you mean \"{word}\"?"));
    format!("expected {words}, got {value}{meant}")
}
