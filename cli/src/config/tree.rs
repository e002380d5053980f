//! The values that were set, and where, before they are checked.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;
use toml::Value;
use toml::de::{DeTable, DeValue, ValueDeserializer};

use super::keys;
use crate::error::{ConfigError, Origin};

/// The prefix of environment variables that set a key: `PIPEWRIGHT_SECTION__KEY`.
const PREFIX: &str = "PIPEWRIGHT_";

/// The key whose tables hold keys themselves.
pub(super) const SOURCES: &str = "data.sources";

fn is_sources(section: &str, key: &str) -> bool {
    SOURCES.split_once('.') == Some((section, key))
}

/// Whether a value from this source overrides one from the other: `--set` overrides the environment, which
/// overrides a file, which overrides a model's folder.
pub(super) fn is_stronger(origin: &Origin, than: &Origin) -> bool {
    let strength = |origin: &Origin| match origin {
        Origin::Pretrained(_) => 0,
        Origin::File { .. } => 1,
        Origin::Environment(_) => 2,
        Origin::Set => 3,
    };
    strength(origin) > strength(than)
}

/// A value and where it was set.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) value: Value,
    /// The text of a value from outside of a file. It may be meant as text without quotes.
    pub(super) text: Option<String>,
    pub(super) origin: Origin,
}

/// The values of one section, by their keys.
pub(super) type Entries = BTreeMap<String, Entry>;

/// The values of all sections: section, then key.
#[derive(Debug, Default)]
pub(super) struct Tree {
    sections: BTreeMap<String, Entries>,
    /// The tables `[[data.sources]]`, and where they were set.
    pub(super) sources: Option<(Origin, Vec<Entries>)>,
}

impl Tree {
    /// The values of a section.
    pub(super) fn section(&self, name: &str) -> impl Iterator<Item = (&str, &Entry)> {
        self.sections.get(name).into_iter().flatten().map(|(key, entry)| (key.as_str(), entry))
    }

    pub(super) fn get(&self, section: &str, key: &str) -> Option<&Entry> {
        self.sections.get(section)?.get(key)
    }

    pub(super) fn insert(&mut self, section: &str, key: &str, entry: Entry) {
        self.sections.entry(section.to_owned()).or_default().insert(key.to_owned(), entry);
    }

    pub(super) fn remove(&mut self, section: &str, key: &str) {
        if let Some(keys) = self.sections.get_mut(section) {
            keys.remove(key);
        }
    }

    /// A tree of one section.
    pub(super) fn of(section: &str, entries: Entries) -> Self {
        Self { sections: BTreeMap::from([(section.to_owned(), entries)]), sources: None }
    }

    /// Adds the values of a file.
    pub(super) fn add_file(&mut self, name: &str, text: &str) -> Result<(), ConfigError> {
        let origin_of = |offset: usize| origin(name, text, offset);
        let syntax = |source: toml::de::Error| {
            let span = source.span().unwrap_or(0..0);
            let (origin, form) = (origin_of(span.start), looks_like(text));
            let shown = match text[span].trim() {
                text if text.is_empty() || text.contains('\n') => String::new(),
                text => format!(": `{text}`"),
            };
            ConfigError::Other(format!("{origin}: {}{shown}{form}", source.message()))
        };
        for (section, contents) in DeTable::parse(text).map_err(syntax)?.into_inner() {
            let place = origin_of(section.span().start);
            let section = section.into_inner();
            let DeValue::Table(contents) = contents.into_inner() else {
                return Err(keys::outside_section(&section, &place));
            };
            keys::check_section(&section, &place)?;
            for (key, value) in contents {
                let origin = origin_of(key.span().start);
                if is_sources(&section, key.get_ref()) {
                    let tables = tables(value.into_inner(), &origin_of, &origin)?;
                    self.sources = (!tables.is_empty()).then_some((origin, tables));
                    continue;
                }
                let value = Value::deserialize(ValueDeserializer::from(value)).map_err(syntax)?;
                self.insert(&section, &key.into_inner(), Entry { value, text: None, origin });
            }
        }
        Ok(())
    }

    /// Adds the values of environment variables such as `PIPEWRIGHT_MODEL__DIM`. Other variables are ignored.
    pub(super) fn add_environment(&mut self, variables: &[(String, String)]) -> Result<(), ConfigError> {
        for (name, value) in variables {
            let Some(rest) = name.strip_prefix(PREFIX) else {
                continue;
            };
            if let Some((section, key)) = rest.split_once("__") {
                let (section, key) = (section.to_lowercase(), key.to_lowercase());
                self.add_text(&section, &key, value, Origin::Environment(name.clone()))?;
            } else if let Some((section, key)) = rest.split_once('_')
                && keys::is_section(&section.to_lowercase())
            {
                return Err(ConfigError::Other(format!(
                    "environment variable {name} sets nothing: two underscores stand between section and \
                     key, write {PREFIX}{section}__{key}"
                )));
            }
        }
        Ok(())
    }

    /// Adds the values of `section.key=value` arguments.
    pub(super) fn add_sets(&mut self, sets: &[String]) -> Result<(), ConfigError> {
        for set in sets {
            let Some((key, value)) = set.split_once('=') else {
                return Err(ConfigError::Other(format!("--set {set}: expected section.key=value")));
            };
            let Some((section, key)) = key.trim().split_once('.') else {
                return Err(keys::outside_section(key.trim(), &Origin::Set));
            };
            self.add_text(section, key, value.trim(), Origin::Set)?;
        }
        Ok(())
    }

    fn add_text(&mut self, section: &str, key: &str, text: &str, origin: Origin) -> Result<(), ConfigError> {
        keys::check_section(section, &origin)?;
        if is_sources(section, key) {
            let value = DeValue::parse(text)
                .map_err(|error| ConfigError::Other(format!("{origin}: {SOURCES}: {}", error.message())))?;
            let tables = tables(value.into_inner(), &|_| origin.clone(), &origin)?;
            self.sources = (!tables.is_empty()).then_some((origin, tables));
            return Ok(());
        }
        let parsed =
            DeValue::parse(text).and_then(|value| Value::deserialize(ValueDeserializer::from(value)));
        let value = parsed.unwrap_or_else(|_| Value::String(text.to_owned()));
        self.insert(section, key, Entry { value, text: Some(text.to_owned()), origin });
        Ok(())
    }
}

/// A place in a file.
fn origin(name: &str, text: &str, offset: usize) -> Origin {
    Origin::File { name: name.to_owned(), line: text[..offset].matches('\n').count() + 1 }
}

/// The tables of a list of tables. `all`: where the list was set.
fn tables(
    value: DeValue<'_>,
    origin: &dyn Fn(usize) -> Origin,
    all: &Origin,
) -> Result<Vec<Entries>, ConfigError> {
    let wrong = || {
        let problem = "expected tables, each with its keys below a line [[data.sources]]".into();
        let (origin, key) = (Some(all.clone()), SOURCES.to_owned());
        ConfigError::Value { origin, key, problem: Box::new(problem) }
    };
    let DeValue::Array(values) = value else {
        return Err(wrong());
    };
    let table = |value: Spanned<DeValue<'_>>| {
        let DeValue::Table(keys) = value.into_inner() else {
            return Err(wrong());
        };
        let entry = |(key, value): (Spanned<_>, Spanned<_>)| {
            let origin = origin(key.span().start);
            let value = Value::deserialize(ValueDeserializer::from(value));
            let value =
                value.map_err(|error| ConfigError::Other(format!("{origin}: {}", error.message())))?;
            Ok((String::from(key.into_inner()), Entry { value, text: None, origin }))
        };
        keys.into_iter().map(entry).collect()
    };
    values.into_iter().map(table).collect()
}

/// The form that a text has which is no TOML, by its first line that is no comment.
fn looks_like(text: &str) -> String {
    let mut lines = text.lines().map(str::trim);
    let first = lines.find(|line| !line.is_empty() && !line.starts_with('#'));
    let form = match first.unwrap_or_default() {
        first if first.starts_with('{') => "JSON",
        "---" => "YAML",
        first if first.contains(':') && !first.contains(['=', '[']) => "YAML",
        _ => return String::new(),
    };
    format!(
        "; a config is TOML, with lines such as `[section]` and `key = value`, and this looks like {form}"
    )
}
