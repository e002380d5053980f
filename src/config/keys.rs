//! Which keys there are, and which one was probably meant.

use serde::de::value::Error as NoValue;
use serde::de::{Deserializer, Error as _, Visitor};
use serde::{Deserialize, forward_to_deserialize_any};

use super::sections::{Checkpoint, Data, Launch, Metrics, Model, Optimizer, Pipeline, Train};
use super::tree::Origin;
use crate::error::{Error, Result};
use crate::nearest::nearest;

/// The sections and their keys, in the order in which they are written.
pub(super) fn all() -> [(&'static str, &'static [&'static str]); 8] {
    [
        ("model", of::<Model>()),
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

/// Notes the fields that a struct asks for and gives it nothing.
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

/// Refuses a section that does not exist.
pub(super) fn check_section(section: &str, origin: &Origin) -> Result<()> {
    let names = all().map(|(name, _)| name);
    if names.contains(&section) {
        return Ok(());
    }
    let meant = nearest(section, names).map_or(String::new(), |name| format!(": did you mean [{name}]?"));
    Err(Error::Invalid(format!(
        "{origin}: unknown section [{section}]{meant} (sections: {})",
        names.join(", ")
    )))
}

/// Refuses a key that its section does not have.
pub(super) fn unknown(section: &str, key: &str, origin: &Origin, known: &[&str]) -> Error {
    let elsewhere = sections_with(key);
    let meant = match (nearest(key, known.iter().copied()), elsewhere.as_slice()) {
        (_, [other]) => format!("it belongs to [{other}]"),
        (Some(near), _) => format!("did you mean `{near}`?"),
        (None, _) => format!("keys of [{section}]: {}", known.join(", ")),
    };
    Error::Invalid(format!("{origin}: unknown key {section}.{key}: {meant}"))
}

/// Refuses a key that stands in no section.
pub(super) fn outside_section(key: &str, origin: &Origin) -> Error {
    let meant = match sections_with(key).as_slice() {
        [] => "every key belongs to a section, as in train.steps".to_owned(),
        sections => {
            let names: Vec<_> = sections
                .iter()
                .map(|section| format!("{section}.{key}"))
                .collect();
            format!("did you mean {}?", names.join(" or "))
        }
    };
    Error::Invalid(format!("{origin}: `{key}` stands in no section: {meant}"))
}

fn sections_with(key: &str) -> Vec<&'static str> {
    all()
        .into_iter()
        .filter(|(_, keys)| keys.contains(&key))
        .map(|(section, _)| section)
        .collect()
}
