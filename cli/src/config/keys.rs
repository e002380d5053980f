//! All keys, and the key that was probably meant.

use serde::de::value::Error as NoValue;
use serde::de::{Deserializer, Error as _, Visitor};
use serde::{Deserialize, forward_to_deserialize_any};

use super::data::Data;
#[cfg(test)]
use super::elsewhere::VALUES;
use super::elsewhere::{KEYS, NO_KEYS, Named};
use super::model::Model;
use super::optimizer::Optimizer;
use super::sections::{Checkpoint, Launch, Metrics, Pipeline, Train};
use super::training::Lora;
use crate::error::{ConfigError, MeantKey, Origin};
use pipewright::nearest::nearest;

/// The sections and their keys, in the order in which they are written.
pub(super) fn all() -> [(&'static str, &'static [&'static str]); 9] {
    [
        ("model", of::<Model>()),
        ("lora", of::<Lora>()),
        ("data", of::<Data>()),
        ("pipeline", of::<Pipeline>()),
        ("optimizer", of::<Optimizer>()),
        ("train", of::<Train>()),
        ("checkpoint", of::<Checkpoint>()),
        ("metrics", of::<Metrics>()),
        ("launch", of::<Launch>()),
    ]
}

/// The names of a struct's fields.
pub(super) fn of<'de, T: Deserialize<'de>>() -> &'static [&'static str] {
    let mut fields: &[&str] = &[];
    let _ = T::deserialize(Fields(&mut fields));
    fields
}

/// Records the fields that a struct asks for, without giving it values.
struct Fields<'a>(&'a mut &'static [&'static str]);

impl<'de> Deserializer<'de> for Fields<'_> {
    type Error = NoValue;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> std::result::Result<V::Value, NoValue> {
        Err(NoValue::custom("no value"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> std::result::Result<V::Value, NoValue> {
        *self.0 = fields;
        self.deserialize_any(visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

/// Whether there is such a section.
pub(super) fn is_section(name: &str) -> bool {
    all().iter().any(|(section, _)| *section == name)
}

/// Refuses a section that does not exist.
pub(super) fn check_section(section: &str, origin: &Origin) -> Result<(), ConfigError> {
    if is_section(section) {
        return Ok(());
    }
    let known: Vec<_> = all().iter().map(|(name, _)| *name).collect();
    Err(ConfigError::UnknownSection {
        origin: origin.clone(),
        section: section.to_owned(),
        nearest: nearest(section, known.iter().copied()),
        known,
    })
}

/// The error for a key that its section does not have.
pub(super) fn unknown(
    section: &str,
    key: &str,
    origin: Origin,
    known: &'static [&'static str],
) -> ConfigError {
    let meant = match (named(section, key), sections_with(key).as_slice()) {
        (Some(found), _) if found.section == section && found.note.is_empty() => MeantKey::Nearest(found.key),
        (Some(found), _) if found.section == section => elsewhere(found),
        (_, [other]) => MeantKey::InSection(other),
        (Some(found), _) => elsewhere(found),
        _ => unnamed(section, key, known),
    };
    ConfigError::UnknownKey {
        origin,
        section: section.to_owned(),
        key: key.to_owned(),
        meant: Box::new(meant),
    }
}

/// The key that another program calls so: of this section if there is one, else the first.
fn named(section: &str, key: &str) -> Option<&'static Named> {
    let rows = || KEYS.iter().filter(|row| row.name == key.to_lowercase());
    rows()
        .find(|row| row.section == section)
        .or_else(|| rows().next())
}

fn elsewhere(found: &Named) -> MeantKey {
    MeantKey::Elsewhere {
        section: found.section,
        key: found.key,
        note: found.note,
    }
}

/// What to say of a key that has no other name.
fn unnamed(section: &str, key: &str, known: &'static [&'static str]) -> MeantKey {
    let instead = NO_KEYS.iter().find(|(name, _)| *name == key.to_lowercase());
    match (instead, nearest(key, known.iter().copied())) {
        (Some((_, instead)), _) => MeantKey::Instead(instead),
        (None, Some(near)) => MeantKey::Nearest(near),
        (None, None) => MeantKey::None {
            section: section.to_owned(),
            known,
        },
    }
}

/// The error for a key outside of all sections.
pub(super) fn outside_section(key: &str, origin: Origin) -> ConfigError {
    let mut meant: Vec<String> = sections_with(key)
        .iter()
        .map(|section| format!("{section}.{key}"))
        .collect();
    if meant.is_empty() {
        meant.extend(named("", key).map(|row| format!("{}.{}", row.section, row.key)));
    }
    ConfigError::NoSection {
        origin,
        key: key.to_owned(),
        meant,
    }
}

fn sections_with(key: &str) -> Vec<&'static str> {
    all()
        .into_iter()
        .filter(|(_, keys)| keys.contains(&key))
        .map(|(section, _)| section)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_of_another_program_is_of_a_key() {
        for (section, key, value, _) in VALUES {
            assert!(sections_with(key).contains(section), "{section}.{key}");
            let rows = VALUES
                .iter()
                .filter(|row| (row.0, row.1, row.2) == (*section, *key, *value));
            assert_eq!((rows.count(), value.to_lowercase().as_str()), (1, *value));
        }
    }

    #[test]
    fn every_name_of_another_program_leads_to_a_key() {
        for row in KEYS {
            let (_, keys) = all()
                .into_iter()
                .find(|(section, _)| *section == row.section)
                .expect(row.section);
            assert!(keys.contains(&row.key), "{}.{}", row.section, row.key);
            let is_key = keys.contains(&row.name) && row.name != row.key;
            assert!(!is_key, "{}.{} is a key", row.section, row.name);
            let twice = KEYS
                .iter()
                .filter(|other| (other.name, other.section) == (row.name, row.section));
            assert_eq!(twice.count(), 1, "{}", row.name);
            assert_eq!(row.name, row.name.to_lowercase());
        }
        for (name, _) in NO_KEYS {
            assert_eq!(sections_with(name), [""; 0], "{name} is a key");
            assert!(named("", name).is_none(), "{name} is in both lists");
        }
    }
}
