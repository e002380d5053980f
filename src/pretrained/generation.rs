//! The files that say how transformers reads and writes text with a model.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::described::{CONFIG, Described};
use super::json;
use super::key::{Key, may_be_null, nothing, told};
use crate::error::{Error, Result};

/// The file that says how tokens are chosen.
pub const GENERATION: &str = "generation_config.json";

/// The keys of `generation_config.json`.
pub(super) const OF_CHOICE: &[Key] = &[
    may_be_null("eos_token_id", "null"),
    told("temperature", "1.0", &["1.0", "null"]),
    told("top_k", "null", &["null"]),
    told("top_p", "1.0", &["1.0", "null"]),
    told("repetition_penalty", "1.0", &["1.0", "null"]),
    told("min_p", "null", &["null"]),
    told("typical_p", "1.0", &["1.0", "null"]),
    told("epsilon_cutoff", "0.0", &["0.0", "null"]),
    told("eta_cutoff", "0.0", &["0.0", "null"]),
    told("no_repeat_ngram_size", "0", &["0", "null"]),
    told("num_beams", "1", &["1", "null"]),
    told("penalty_alpha", "null", &["null", "0.0"]),
    told("guidance_scale", "null", &["null", "1.0"]),
    told("min_length", "0", &["0", "null"]),
    told("min_new_tokens", "null", &["null", "0"]),
    told("max_time", "null", &["null"]),
    told("stop_strings", "null", &["null", "[]"]),
    told("bad_words_ids", "null", &["null", "[]"]),
    told("sequence_bias", "null", &["null"]),
    told("suppress_tokens", "null", &["null", "[]"]),
    told("begin_suppress_tokens", "null", &["null", "[]"]),
    told("forced_bos_token_id", "null", &["null"]),
    told("forced_eos_token_id", "null", &["null"]),
    told("exponential_decay_length_penalty", "null", &["null"]),
    told("watermarking_config", "null", &["null"]),
    nothing("do_sample bos_token_id pad_token_id max_length max_new_tokens"),
];

/// The file of a folder, if there is one.
pub(super) fn choice(folder: &Path) -> Result<Option<(PathBuf, Value)>> {
    let path = folder.join(GENERATION);
    if !path.is_file() {
        return Ok(None);
    }
    let value = json::read(&path)?;
    Ok(Some((path, value)))
}

/// The tokens that end a text, as transformers takes them: from `generation_config.json` if a folder has it,
/// and else from `config.json`. A folder without either names none.
///
/// # Errors
/// When a file cannot be read, or its `eos_token_id` is neither a number nor a list of numbers.
pub fn ends(folder: &Path) -> Result<Vec<u32>> {
    let (path, value) = match choice(folder)? {
        Some(found) => found,
        None if folder.join(CONFIG).is_file() => {
            let described = Described::read(folder)?;
            let completed = described.completed()?;
            (described.path, completed)
        }
        None => return Ok(Vec::new()),
    };
    let named = value.get("eos_token_id").unwrap_or(&Value::Null);
    let ids = match named {
        Value::Null => return Ok(Vec::new()),
        Value::Array(ids) => ids.as_slice(),
        id => std::slice::from_ref(id),
    };
    let number = |id: &Value| {
        id.as_i64().ok_or_else(|| {
            Error::wrong_key(
                &path,
                "eos_token_id",
                "the number of a token, or a list of numbers",
                Some(named),
            )
        })
    };
    let ids = ids.iter().map(number).collect::<std::result::Result<Vec<_>, _>>()?;
    // -1 stands for no token.
    Ok(ids.into_iter().filter_map(|id| u32::try_from(id).ok()).collect())
}
