//! Tokens that the files beside a `tokenizer.json` add to it, as transformers 5 adds them.

use std::path::Path;

use serde_json::{Map, Value};
use tokenizers::AddedToken;

use crate::error::{DataError, Error, Result, TokenizerProblem};

/// The names of special tokens that every tokenizer may have, in the order in which they are added. Other
/// names that end in `_token` come behind them.
const NAMES: [&str; 7] = [
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
];

/// The key of `tokenizer_config.json` with tokens by their numbers. If it is there, `special_tokens_map.json`
/// and `added_tokens.json` do not count.
pub(super) const DECODER: &str = "added_tokens_decoder";

/// A list of special tokens without names, or an object of tokens with names.
const EXTRA: &str = "extra_special_tokens";

/// What transformers 4 called such a list.
const ADDITIONAL: &str = "additional_special_tokens";

/// What the files beside a `tokenizer.json` say of tokens.
#[derive(Debug, Default)]
pub(super) struct Listed {
    /// Tokens by their numbers, in order. A number is where a token stood, and not where it is put.
    numbered: Vec<AddedToken>,
    /// Tokens with a name.
    pub(super) named: Vec<(String, AddedToken)>,
    /// Special tokens without a name.
    extra: Vec<AddedToken>,
}

impl Listed {
    /// Reads the settings in `tokenizer_config.json`, with what `special_tokens_map.json` says, and
    /// `added_tokens.json`. `path` is the file that an error names.
    ///
    /// # Errors
    /// [`TokenizerProblem::NoAddedToken`].
    pub(super) fn read(path: &Path, settings: &Map<String, Value>, older: &Value) -> Result<Self> {
        let refuse = |key: &str| -> Error {
            let (path, key) = (path.to_owned(), key.to_owned());
            let problem = TokenizerProblem::NoAddedToken { key };
            DataError::Tokenizer { path, problem }.into()
        };
        let mut listed = Self::default();
        let mut more = Map::new();
        let is_empty = |value: &Value| value.as_array().is_some_and(Vec::is_empty) || value.is_null();
        let extra = settings.get(EXTRA).filter(|value| !is_empty(value));
        match extra.or_else(|| settings.get(ADDITIONAL)) {
            Some(Value::Array(tokens)) => {
                let tokens = tokens
                    .iter()
                    .map(|one| token(one, true).ok_or_else(|| refuse(EXTRA)));
                listed.extra = tokens.collect::<Result<_>>()?;
            }
            Some(Value::Object(named)) => more.clone_from(named),
            _ => {}
        }
        let others = settings.keys().filter(|key| !NAMES.contains(&key.as_str()));
        let others = others.filter(|key| key.ends_with("_token"));
        for key in NAMES.into_iter().chain(others.map(String::as_str)) {
            if let Some(value) = settings.get(key).and_then(|value| token(value, true)) {
                listed.named.push((key.to_owned(), value));
            }
        }
        for (key, value) in more {
            let value = token(&value, true).ok_or_else(|| refuse(EXTRA))?;
            listed.named.push((key, value));
        }
        listed.numbered = match settings.get(DECODER).and_then(Value::as_object) {
            Some(numbered) => {
                let mut all = Vec::new();
                for (number, value) in numbered {
                    let number: u32 = number.parse().map_err(|_| refuse(DECODER))?;
                    let special = value["special"].as_bool().unwrap_or(false);
                    let value = value.is_object().then(|| token(value, special)).flatten();
                    all.push((number, value.ok_or_else(|| refuse(DECODER))?));
                }
                in_order(all)
            }
            None => listed.of_older(older),
        };
        Ok(listed)
    }

    /// The tokens of an `added_tokens.json`, which has their numbers.
    fn of_older(&self, older: &Value) -> Vec<AddedToken> {
        let is_special = |text: &str| self.special().any(|token| token.content == text);
        let numbers = older.as_object().into_iter().flatten();
        let all = numbers.filter_map(|(text, number)| {
            let number = u32::try_from(number.as_u64()?).ok()?;
            Some((number, AddedToken::from(text.clone(), is_special(text))))
        });
        in_order(all.collect())
    }

    fn special(&self) -> impl Iterator<Item = &AddedToken> {
        self.named.iter().map(|(_, token)| token).chain(&self.extra)
    }

    /// Those which are to be added to a tokenizer with these added tokens.
    pub(super) fn missing(&self, has: &[AddedToken]) -> Vec<AddedToken> {
        let mut missing: Vec<AddedToken> = self.numbered.clone();
        missing.retain(|token| !has.contains(token));
        for token in self.special() {
            let mut known = has.iter().chain(&missing);
            if known.all(|other| other.content != token.content) {
                missing.push(token.clone());
            }
        }
        for token in &mut missing {
            token.special |= self.named.iter().any(|(_, named)| named.content == token.content);
        }
        missing
    }
}

/// A token: a text, or an object with its `content` and how it is found.
fn token(value: &Value, special: bool) -> Option<AddedToken> {
    if let Some(text) = value.as_str() {
        return Some(AddedToken::from(text, special));
    }
    let is = |key: &str| value[key].as_bool();
    Some(AddedToken {
        content: value["content"].as_str()?.to_owned(),
        single_word: is("single_word").unwrap_or(false),
        lstrip: is("lstrip").unwrap_or(false),
        rstrip: is("rstrip").unwrap_or(false),
        normalized: is("normalized").unwrap_or(!special),
        special,
    })
}

fn in_order(mut all: Vec<(u32, AddedToken)>) -> Vec<AddedToken> {
    all.sort_by_key(|(number, _)| *number);
    all.into_iter().map(|(_, token)| token).collect()
}
