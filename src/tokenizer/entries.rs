//! Objects of JSON in the order of their file.

use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// The entries of an object, in the order of the file.
#[derive(Debug, Default)]
pub(super) struct Entries(pub(super) Vec<(String, Value)>);

impl Entries {
    pub(super) fn get(&self, key: &str) -> Option<&Value> {
        let mut all = self.0.iter().rev();
        all.find_map(|(name, value)| (name == key).then_some(value))
    }
}

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reads;

        impl<'de> Visitor<'de> for Reads {
            type Value = Entries;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries, A::Error> {
                let mut all = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    all.push(entry);
                }
                Ok(Entries(all))
            }
        }

        from.deserialize_map(Reads)
    }
}
