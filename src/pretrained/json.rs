//! Values of `config.json`, by key.

use std::path::Path;

use serde_json::Value;

use crate::error::{PretrainedError, Result};

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
    pub(super) fn inside(self, key: &str) -> Option<Self> {
        let value = self.get(key)?;
        let path = self.path;
        value.is_object().then_some(Self { path, value })
    }

    /// A whole number that must be there.
    pub(super) fn count(self, key: &str) -> Result<usize> {
        match self.count_or(key, usize::MAX)? {
            usize::MAX => Err(self.wrong(key, "a whole number")),
            count => Ok(count),
        }
    }

    /// A whole number.
    pub(super) fn count_or(self, key: &str, default: usize) -> Result<usize> {
        let Some(value) = self.get(key) else {
            return Ok(default);
        };
        let count = value.as_u64().and_then(|count| usize::try_from(count).ok());
        count.ok_or_else(|| self.wrong(key, "a whole number"))
    }

    pub(super) fn number_or(self, key: &str, default: f64) -> Result<f64> {
        let Some(value) = self.get(key) else {
            return Ok(default);
        };
        value.as_f64().ok_or_else(|| self.wrong(key, "a number"))
    }

    pub(super) fn truth_or(self, key: &str, default: bool) -> Result<bool> {
        let Some(value) = self.get(key) else {
            return Ok(default);
        };
        value.as_bool().ok_or_else(|| self.wrong(key, "true or false"))
    }

    pub(super) fn text(self, key: &str) -> Option<&'a str> {
        self.get(key).and_then(Value::as_str)
    }

    /// Refuses a value that this program cannot compute with.
    pub(super) fn require(self, holds: bool, key: &str, expected: &'static str) -> Result<()> {
        if holds {
            Ok(())
        } else {
            Err(self.wrong(key, expected))
        }
    }

    fn wrong(self, key: &str, expected: &'static str) -> crate::Error {
        let error = PretrainedError::Key {
            path: self.path.to_owned(),
            key: key.to_owned(),
            expected,
            found: self.value.get(key).map(Value::to_string),
        };
        error.into()
    }
}
