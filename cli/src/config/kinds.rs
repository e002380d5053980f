//! Keys for only one kind of model, data, optimizer or fabric.

use toml::{Table, Value};

use super::keys;
use super::tree::{Tree, is_stronger};
use crate::error::ConfigError;

/// The keys that count only if another key of their section has one of these values: section, key, other key,
/// values.
fn rules() -> impl Iterator<Item = (&'static str, &'static str, &'static str, &'static [&'static str])> {
    keys::all().filter_map(|(section, key)| {
        let (by, is) = key.only?;
        Some((section, key.name, by, is))
    })
}

/// Whether data of this kind have this key of `[data]`.
pub(super) fn has(kind: &str, key: &str) -> bool {
    let mut rules = rules().filter(|(section, of, ..)| (*section, *of) == ("data", key));
    rules.all(|(.., by, is)| by != "kind" || is.contains(&kind))
}

/// Removes the keys of other kinds if a stronger source chose the kind. Otherwise refuses them. `resolved`
/// holds every key's value.
pub(super) fn settle(tree: &mut Tree, resolved: &Table) -> Result<(), ConfigError> {
    // With several sources, `[data]` has defaults for all of their kinds.
    let skipped = if tree.sources.is_some() { "data" } else { "" };
    for (section, key, by, is) in rules().filter(|(section, ..)| *section != skipped) {
        let chosen = text(resolved, section, by);
        let Some(entry) = tree.get(section, key).filter(|_| !is.contains(&chosen)) else {
            continue;
        };
        let overridden = tree.get(section, by).is_some_and(|by| is_stronger(&by.origin, &entry.origin));
        if !overridden {
            return Err(ConfigError::Other(format!(
                "{}: {section}.{key} is for {section}.{by} = \"{}\", and this config has \"{chosen}\": \
                 remove one of the two",
                entry.origin,
                is.join("\" or \"")
            )));
        }
        tree.remove(section, key);
    }
    Ok(())
}

/// Keys that all sources of data have in common. Only `[data]` has them.
pub(super) const COMMON: [&str; 3] = ["seq", "tokenizer", "seed"];

/// Removes the keys of other kinds from a config that is written.
pub(super) fn strip(resolved: &mut Table) {
    if let Some(Value::Table(data)) = resolved.get_mut("data")
        && let Some(Value::Array(sources)) = data.get_mut("sources")
    {
        for source in sources.iter_mut().filter_map(Value::as_table_mut) {
            strip_section(source, "data");
            source.retain(|key, _| !COMMON.contains(&key));
        }
        data.remove("path");
    }
    for (section, keys) in resolved.iter_mut() {
        if let Value::Table(keys) = keys {
            strip_section(keys, section);
        }
    }
}

fn strip_section(keys: &mut Table, section: &str) {
    for (_, key, by, is) in rules().filter(|(of, ..)| *of == section) {
        if !is.contains(&keys.get(by).and_then(Value::as_str).unwrap_or_default()) {
            keys.remove(key);
        }
    }
}

fn text<'a>(table: &'a Table, section: &str, key: &str) -> &'a str {
    table.get(section).and_then(|keys| keys.get(key)).and_then(Value::as_str).unwrap_or_default()
}
