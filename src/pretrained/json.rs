//! Values of `config.json`, by key.

use std::fs;
use std::path::Path;

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::sizes::{FEW, WHOLE, possible, possible_layers};
use crate::error::{Error, Result};

/// What a file of JSON holds.
pub(super) fn read<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let bytes = fs::read(path).map_err(Error::io("read", path))?;
    serde_json::from_slice(&bytes).map_err(|source| Error::no_json(path, source))
}

/// The keys of a file, or of an object in it.
#[derive(Clone, Copy)]
pub(super) struct Json<'a> {
    pub(super) path: &'a Path,
    pub(super) value: &'a Value,
}

impl<'a> Json<'a> {
    /// A value that is there and not null.
    pub(super) fn get(self, key: &str) -> Option<&'a Value> {
        self.value.get(key).filter(|value| !value.is_null())
    }

    /// The object at a key.
    pub(super) fn inside(self, key: &str) -> Result<Option<Self>> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        self.require(value.is_object(), key, "an object with keys and values")?;
        let path = self.path;
        Ok(Some(Self { path, value }))
    }

    /// A whole number that must be there.
    pub(super) fn count(self, key: &str) -> Result<usize> {
        let count = self.get(key).and_then(Value::as_u64).and_then(possible);
        count.ok_or_else(|| self.wrong(key, WHOLE))
    }

    /// A number of blocks that must be there.
    pub(super) fn layers(self, key: &str) -> Result<usize> {
        let count = self.get(key).and_then(Value::as_u64).and_then(possible_layers);
        count.ok_or_else(|| self.wrong(key, FEW))
    }

    /// A whole number.
    pub(super) fn count_or(self, key: &str, default: usize) -> Result<usize> {
        match self.get(key) {
            None => Ok(default),
            Some(_) => self.count(key),
        }
    }

    /// A number that must be there.
    pub(super) fn number(self, key: &str) -> Result<f64> {
        let number = self.get(key).and_then(Value::as_f64);
        number.ok_or_else(|| self.wrong(key, "a number"))
    }

    pub(super) fn number_or(self, key: &str, default: f64) -> Result<f64> {
        match self.get(key) {
            None => Ok(default),
            Some(_) => self.number(key),
        }
    }

    /// A truth value that must be there.
    pub(super) fn truth(self, key: &str) -> Result<bool> {
        let truth = self.get(key).and_then(Value::as_bool);
        truth.ok_or_else(|| self.wrong(key, "true or false"))
    }

    pub(super) fn truth_or(self, key: &str, default: bool) -> Result<bool> {
        match self.get(key) {
            None => Ok(default),
            Some(_) => self.truth(key),
        }
    }

    pub(super) fn text(self, key: &str) -> Result<Option<&'a str>> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        let text = value.as_str();
        text.map(Some).ok_or_else(|| self.wrong(key, "text"))
    }

    /// Refuses a value that this program cannot compute with.
    pub(super) fn require(self, holds: bool, key: &str, expected: &'static str) -> Result<()> {
        if holds { Ok(()) } else { Err(self.wrong(key, expected)) }
    }

    fn wrong(self, key: &str, expected: &'static str) -> crate::Error {
        Error::wrong_key(self.path, key, expected, self.value.get(key))
    }
}
