//! Reads a typed section from the values that were set. If a value does not fit, the error says what its type
//! accepts.

use std::fmt::{self, Display};

use pipewright::nearest::nearest;
use serde::de::value::{MapDeserializer, SeqDeserializer, StrDeserializer};
use serde::de::{DeserializeOwned, Deserializer, Error, Expected, IntoDeserializer, Unexpected, Visitor};
use serde::forward_to_deserialize_any;
use toml::{Table, Value};

use super::keys;
use super::tree::{Entry, Tree};
use crate::error::ConfigError;

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

/// What a setting's type accepts: the error for any other value.
#[derive(Debug)]
pub(super) enum Mismatch {
    /// In Rust's words.
    Expected(String),
    /// One of these words.
    NoChoice(&'static [&'static str]),
}

impl Mismatch {
    /// In the words of a config.
    pub(super) fn in_words(&self) -> String {
        let words = match self {
            Self::NoChoice([a, b]) => return format!("`{a}` or `{b}`"),
            Self::NoChoice(choices) => return format!("one of `{}`", choices.join("`, `")),
            Self::Expected(words) => words.as_str(),
        };
        match words {
            "usize" | "u64" => "a whole number, 0 or more",
            "u32" => "a whole number from 0 to 4294967295",
            "f64" => "a number",
            "a boolean" => "true or false",
            "a string" | "path string" => "text in quotes",
            "a sequence" => "a list",
            "a tuple of size 2" | "2 elements in sequence" => "a list of two numbers",
            other => other,
        }
        .to_owned()
    }
}

impl Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected {}", self.in_words())
    }
}

impl std::error::Error for Mismatch {}

impl Error for Mismatch {
    fn custom<T: Display>(expected: T) -> Self {
        Self::Expected(expected.to_string())
    }

    fn invalid_type(_: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::Expected(expected.to_string())
    }

    fn invalid_value(_: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::Expected(expected.to_string())
    }

    fn invalid_length(_: usize, expected: &dyn Expected) -> Self {
        Self::Expected(expected.to_string())
    }

    fn unknown_field(field: &str, known: &'static [&'static str]) -> Self {
        let known = known.join("`, `");
        Self::Expected(format!("only the keys `{known}`, there is no `{field}`"))
    }

    fn unknown_variant(_: &str, choices: &'static [&'static str]) -> Self {
        Self::NoChoice(choices)
    }
}

/// A value that serde reads.
#[derive(Clone, Copy)]
pub(super) struct Given<'a>(pub(super) &'a Value);

impl<'de> IntoDeserializer<'de, Mismatch> for Given<'_> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Given<'_> {
    type Error = Mismatch;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mismatch> {
        match self.0 {
            Value::String(text) => visitor.visit_str(text),
            Value::Integer(number) => visitor.visit_i64(*number),
            Value::Float(number) => visitor.visit_f64(*number),
            Value::Boolean(truth) => visitor.visit_bool(*truth),
            Value::Datetime(time) => visitor.visit_string(time.to_string()),
            Value::Array(values) => {
                let mut values = SeqDeserializer::new(values.iter().map(Given));
                let read = visitor.visit_seq(&mut values)?;
                values.end()?;
                Ok(read)
            }
            Value::Table(table) => visitor.visit_map(MapDeserializer::new(
                table.iter().map(|(key, value)| (key.as_str(), Given(value))),
            )),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mismatch> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Mismatch> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        choices: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Mismatch> {
        match self.0 {
            Value::String(word) => StrDeserializer::new(word).deserialize_enum(name, choices, visitor),
            _ => Err(Mismatch::NoChoice(choices)),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier ignored_any
    }
}
