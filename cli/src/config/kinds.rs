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

/// Removes the keys of other kinds if a stronger source chose the kind. Otherwise refuses them. `resolved`
/// holds every key's value.
pub(super) fn settle(tree: &mut Tree, resolved: &Table) -> Result<(), ConfigError> {
    for (section, key, by, is) in rules() {
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

/// Removes the keys of other kinds from a config that is written.
pub(super) fn strip(resolved: &mut Table) {
    for (section, key, by, is) in rules() {
        if !is.contains(&text(resolved, section, by))
            && let Some(Value::Table(keys)) = resolved.get_mut(section)
        {
            keys.remove(key);
        }
    }
}

fn text<'a>(table: &'a Table, section: &str, key: &str) -> &'a str {
    table.get(section).and_then(|keys| keys.get(key)).and_then(Value::as_str).unwrap_or_default()
}
