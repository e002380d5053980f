//! Tables of the keys of a file that describes a model: what each key does here, and what it is where the
//! file does not have it.

use std::path::Path;

use serde_json::{Map, Value};

use crate::error::{Error, Result};

/// A key that transformers or llama.cpp reads, or several that do nothing here.
#[derive(Debug)]
pub(super) struct Key {
    /// With spaces between them.
    names: &'static str,
    /// The value of a file without it, as JSON. For a key without effect it does not matter.
    default: &'static str,
    pub(super) rule: Rule,
}

/// What a key does here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// The model or its text is made with it. `null` is a value only where it may be.
    Used { may_be_null: bool },
    /// Values for which there are layers, as JSON, and the words for them. All others are refused.
    Only(&'static [&'static str], &'static str),
    /// Another name of a key. If a file has both, this one counts.
    Alias(&'static str),
    /// transformers computes with it, and this program does not. Other values than these are told.
    Told(&'static [&'static str]),
    /// No number depends on it.
    Nothing,
}

/// The keys of a file, or those that begin alike.
#[derive(Clone, Copy, Debug)]
pub(super) struct Table<'a> {
    /// What stands before each name.
    pub(super) prefix: &'a str,
    pub(super) keys: &'static [Key],
}

pub(super) const fn used(name: &'static str, default: &'static str) -> Key {
    let rule = Rule::Used { may_be_null: false };
    Key { names: name, default, rule }
}

pub(super) const fn may_be_null(name: &'static str, default: &'static str) -> Key {
    let rule = Rule::Used { may_be_null: true };
    Key { names: name, default, rule }
}

/// The first of the values is the default.
pub(super) const fn only(name: &'static str, values: &'static [&'static str], expected: &'static str) -> Key {
    let rule = Rule::Only(values, expected);
    Key { names: name, default: values[0], rule }
}

pub(super) const fn alias(name: &'static str, of: &'static str) -> Key {
    let (default, rule) = ("null", Rule::Alias(of));
    Key { names: name, default, rule }
}

/// `without` are the values with which transformers computes as this program does.
pub(super) const fn told(name: &'static str, default: &'static str, without: &'static [&'static str]) -> Key {
    let rule = Rule::Told(without);
    Key { names: name, default, rule }
}

/// Keys that do nothing here: their names, with spaces between them.
pub(super) const fn nothing(names: &'static str) -> Key {
    let (default, rule) = ("null", Rule::Nothing);
    Key { names, default, rule }
}

/// All keys of the tables that are not null: the values of a file, and the defaults of those that it does not
/// have.
///
/// # Errors
/// When a key has a value for which there is no layer.
pub(super) fn completed(path: &Path, found: &Value, tables: &[Table<'_>]) -> Result<Value> {
    let mut all = Map::new();
    for (name, key) in named(tables) {
        let value = found.get(&name);
        let wrong = |expected| Error::wrong_key(path, &name, expected, value);
        match (key.rule, value) {
            (Rule::Used { may_be_null: false }, Some(Value::Null)) => {
                return Err(wrong("a value, or left out"));
            }
            (Rule::Only(values, expected), Some(value)) if !is_one_of(value, values) => {
                return Err(wrong(expected));
            }
            (Rule::Alias(_) | Rule::Nothing, _) => continue,
            _ => {}
        }
        let value = value.cloned().unwrap_or_else(|| parsed(key.default));
        if !value.is_null() {
            all.insert(name, value);
        }
    }
    for (name, key) in named(tables) {
        if let (Rule::Alias(of), Some(value)) = (key.rule, found.get(&name)) {
            all.insert(of.to_owned(), value.clone());
        }
    }
    Ok(Value::Object(all))
}

/// The keys of a file that are in no table, and which begin with a prefix of one.
pub(super) fn unknown(found: &Value, tables: &[Table<'_>]) -> Vec<String> {
    let names = found.as_object().into_iter().flat_map(Map::keys);
    let is_unknown = |name: &&String| {
        tables.iter().any(|table| name.starts_with(table.prefix))
            && !named(tables).any(|(known, _)| known == **name)
    };
    names.filter(is_unknown).cloned().collect()
}

/// What transformers computes with and this program does not: names and values.
pub(super) fn all_told(found: &Value, tables: &[Table<'_>]) -> Vec<(String, Value)> {
    let told = |(name, key): (String, &'static Key)| {
        let Rule::Told(without) = key.rule else {
            return None;
        };
        let value = found.get(&name).cloned().unwrap_or_else(|| parsed(key.default));
        (!is_one_of(&value, without)).then_some((name, value))
    };
    named(tables).filter_map(told).collect()
}

/// The keys of tables with their whole names.
pub(super) fn named<'a>(tables: &'a [Table<'_>]) -> impl Iterator<Item = (String, &'static Key)> + 'a {
    tables.iter().flat_map(|table| {
        let whole = |name: &str, key| (format!("{}{name}", table.prefix), key);
        table.keys.iter().flat_map(move |key| key.names.split_whitespace().map(move |name| whole(name, key)))
    })
}

fn parsed(json: &'static str) -> Value {
    serde_json::from_str(json).expect("a table has JSON")
}

/// Whether a value is one of these. 1 and 1.0 are equal.
fn is_one_of(value: &Value, values: &'static [&'static str]) -> bool {
    values.iter().any(|json| match (value.as_f64(), parsed(json)) {
        (Some(number), one) if one.is_number() => one.as_f64() == Some(number),
        (_, one) => *value == one,
    })
}
