//! What was set, by whom and where, before it is known whether it makes sense.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use toml::Value;
use toml::de::{DeTable, DeValue, ValueDeserializer};

use super::keys;
use crate::error::{Error, Result};

/// What environment variables that set a key start with: `PIPEWRIGHT_SECTION__KEY`.
const PREFIX: &str = "PIPEWRIGHT_";

/// Where a value was set. A later one overrides an earlier one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Origin {
    /// A line of a file.
    File { name: String, line: usize },
    /// An environment variable.
    Environment(String),
    /// `--set`.
    Set,
}

impl Origin {
    /// Whether a value from here overrides one from there.
    pub(super) fn is_stronger(&self, than: &Self) -> bool {
        let strength = |origin: &Self| match origin {
            Self::File { .. } => 0,
            Self::Environment(_) => 1,
            Self::Set => 2,
        };
        strength(self) > strength(than)
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { name, line } => write!(f, "{name}:{line}"),
            Self::Environment(name) => write!(f, "environment variable {name}"),
            Self::Set => write!(f, "--set"),
        }
    }
}

/// A value and where it was set.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) value: Value,
    /// The text of a value that stood in no file: it may be meant without quotes.
    pub(super) text: Option<String>,
    pub(super) origin: Origin,
}

/// The values of all sections: section, then key.
#[derive(Debug, Default)]
pub(super) struct Tree(BTreeMap<String, BTreeMap<String, Entry>>);

impl Tree {
    /// The values of a section.
    pub(super) fn section(&self, name: &str) -> impl Iterator<Item = (&str, &Entry)> {
        self.0
            .get(name)
            .into_iter()
            .flatten()
            .map(|(key, entry)| (key.as_str(), entry))
    }

    pub(super) fn get(&self, section: &str, key: &str) -> Option<&Entry> {
        self.0.get(section)?.get(key)
    }

    pub(super) fn insert(&mut self, section: &str, key: &str, entry: Entry) {
        self.0
            .entry(section.to_owned())
            .or_default()
            .insert(key.to_owned(), entry);
    }

    pub(super) fn remove(&mut self, section: &str, key: &str) {
        if let Some(keys) = self.0.get_mut(section) {
            keys.remove(key);
        }
    }

    /// Adds the values of a file.
    pub(super) fn add_file(&mut self, name: &str, text: &str) -> Result<()> {
        let origin = |offset: usize| {
            let line = text[..offset].matches('\n').count() + 1;
            Origin::File {
                name: name.to_owned(),
                line,
            }
        };
        let table = DeTable::parse(text).map_err(|error| {
            let place = error
                .span()
                .map_or_else(|| name.to_owned(), |span| origin(span.start).to_string());
            Error::Invalid(format!("{place}: {}", error.message()))
        })?;
        for (section, contents) in table.into_inner() {
            let place = origin(section.span().start);
            let section = section.into_inner();
            let DeValue::Table(contents) = contents.into_inner() else {
                return Err(keys::outside_section(&section, &place));
            };
            keys::check_section(&section, &place)?;
            for (key, value) in contents {
                let origin = origin(key.span().start);
                let value = Value::deserialize(ValueDeserializer::from(value))
                    .map_err(|error| Error::Invalid(format!("{origin}: {}", error.message())))?;
                self.insert(
                    &section,
                    &key.into_inner(),
                    Entry {
                        value,
                        text: None,
                        origin,
                    },
                );
            }
        }
        Ok(())
    }

    /// Adds the values of environment variables, such as `PIPEWRIGHT_MODEL__DIM`; others are passed over.
    pub(super) fn add_environment(&mut self, variables: &[(String, String)]) -> Result<()> {
        for (name, value) in variables {
            let place = name.strip_prefix(PREFIX).and_then(|rest| rest.split_once("__"));
            if let Some((section, key)) = place {
                let (section, key) = (section.to_lowercase(), key.to_lowercase());
                self.add_text(&section, &key, value, Origin::Environment(name.clone()))?;
            }
        }
        Ok(())
    }

    /// Adds the values of `section.key=value` arguments.
    pub(super) fn add_sets(&mut self, sets: &[String]) -> Result<()> {
        for set in sets {
            let place = set
                .split_once('=')
                .and_then(|(key, value)| Some((key.trim().split_once('.')?, value)));
            let Some(((section, key), value)) = place else {
                return Err(match set.split_once('=') {
                    Some((key, _)) => keys::outside_section(key.trim(), &Origin::Set),
                    None => Error::Invalid(format!("--set {set}: expected section.key=value")),
                });
            };
            self.add_text(section, key, value.trim(), Origin::Set)?;
        }
        Ok(())
    }

    fn add_text(&mut self, section: &str, key: &str, text: &str, origin: Origin) -> Result<()> {
        keys::check_section(section, &origin)?;
        let parsed =
            DeValue::parse(text).and_then(|value| Value::deserialize(ValueDeserializer::from(value)));
        let value = parsed.unwrap_or_else(|_| Value::String(text.to_owned()));
        self.insert(
            section,
            key,
            Entry {
                value,
                text: Some(text.to_owned()),
                origin,
            },
        );
        Ok(())
    }
}
