//! Reads the files beside a `tokenizer.json`.

use std::path::Path;

use serde_json::Value;

use crate::error::{DataError, Error, Result};

/// The file with the settings of a tokenizer.
pub(super) const CONFIG: &str = "tokenizer_config.json";

/// The contents of a file, if it exists.
pub(super) fn bytes(path: &Path) -> Result<Option<Vec<u8>>> {
    if !path.is_file() {
        return Ok(None);
    }
    let unreadable = |source| -> Error { DataError::unreadable(path, source).into() };
    std::fs::read(path).map(Some).map_err(unreadable)
}

/// The contents of a file of JSON; null if it does not exist.
pub(super) fn json(path: &Path) -> Result<Value> {
    let Some(bytes) = bytes(path)? else {
        return Ok(Value::Null);
    };
    serde_json::from_slice(&bytes).map_err(|error| {
        DataError::new(format!("the tokenizer `{}` is no JSON: {error}", path.display())).into()
    })
}
