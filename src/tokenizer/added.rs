//! Tokens that the files beside a `tokenizer.json` add to it, as transformers 5 adds them.

use std::path::Path;

use serde_json::Value;
use tokenizers::AddedToken;

use super::entries::Entries;
use crate::error::{DataError, Error, Result};

/// The names of special tokens that every tokenizer may have, in the order in which they are added. Other
/// names that end in `_token` come behind them.
const NAMES: [&str; 7] =
    ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];

/// The key of `tokenizer_config.json` with tokens by their numbers. If it is there, `special_tokens_map.json`
/// and `added_tokens.json` do not count.
pub(super) const DECODER: &str = "added_tokens_decoder";

/// A list of special tokens without names, or an object of tokens with names.
pub(super) const EXTRA: &str = "extra_special_tokens";

/// What transformers 4 called such a list.
const ADDITIONAL: &str = "additional_special_tokens";

/// What the files beside a `tokenizer.json` say of tokens.
#[derive(Debug, Default)]
pub(super) struct Listed {
    /// Tokens with their numbers, in order. A number is where a token stood, and not where it is put.
    numbered: Vec<(u32, AddedToken)>,
    /// Tokens with a name.
    pub(super) named: Vec<(String, AddedToken)>,
    /// Special tokens without a name.
    extra: Vec<AddedToken>,
}

/// The contents of these files. Each is empty if there is no such file, or if it does not count.
#[derive(Debug, Default)]
pub(super) struct Files {
    /// `tokenizer_config.json`.
    pub(super) config: Entries,
    /// What that has as an object of tokens with names.
    pub(super) config_extra: Entries,
    /// `special_tokens_map.json`.
    pub(super) map: Entries,
    /// What that has as an object of tokens with names.
    pub(super) map_extra: Entries,
    /// `added_tokens.json`.
    pub(super) older: Value,
    /// Names and tokens for names that no file has: names of the class with which transformers reads the
    /// tokenizer, and the padding token in `tokenizer.json`.
    pub(super) usual: Vec<(&'static str, String)>,
}

impl Listed {
    /// Reads what the files say. `path` is the file that an error names.
    ///
    /// # Errors
    /// [`DataError`] when a list has something that is no token.
    pub(super) fn read(path: &Path, files: &Files) -> Result<Self> {
        let refuse = |key: &str| -> Error {
            let path = path.display();
            DataError::new(format!(
                "the tokenizer `{path}` `{key}` has something that is no token: expected texts, or objects \
                 with `content`"
            ))
            .into()
        };
        let mut listed = Self { numbered: Vec::new(), named: files.named(), extra: Vec::new() };
        for (name, value) in files.config_extra.0.iter().chain(&files.map_extra.0) {
            let token = token(value).ok_or_else(|| refuse(EXTRA))?;
            listed.named.push((name.clone(), token));
        }
        for value in files.extra() {
            let token = token(value).ok_or_else(|| refuse(EXTRA))?;
            if !listed.extra.contains(&token) {
                listed.extra.push(token);
            }
        }
        listed.numbered = match files.config.get(DECODER).and_then(Value::as_object) {
            Some(numbered) => {
                let mut all = Vec::new();
                for (number, value) in numbered {
                    let number: u32 = number.parse().map_err(|_| refuse(DECODER))?;
                    let token = value.is_object().then(|| token(value)).flatten();
                    all.push((number, token.ok_or_else(|| refuse(DECODER))?));
                }
                in_order(all)
            }
            None => listed.of_older(&files.older),
        };
        Ok(listed)
    }

    /// The tokens of an `added_tokens.json`, which has their numbers.
    fn of_older(&self, older: &Value) -> Vec<(u32, AddedToken)> {
        let is_special = |text: &str| self.special().any(|token| token.content == text);
        let numbers = older.as_object().into_iter().flatten();
        let all = numbers.filter_map(|(text, number)| {
            let number = u32::try_from(number.as_u64()?).ok()?;
            Some((number, AddedToken::from(text.clone(), is_special(text))))
        });
        let mut all = in_order(all.collect());
        all.dedup_by_key(|(number, _)| *number);
        all
    }

    fn special(&self) -> impl Iterator<Item = &AddedToken> {
        self.named.iter().map(|(_, token)| token).chain(&self.extra)
    }

    /// The tokens to add to a tokenizer with the added tokens `has`. Some of these are among them, to become
    /// special.
    pub(super) fn missing(&self, has: &[(u32, AddedToken)], has_decoder: bool) -> Vec<AddedToken> {
        let is_free = |number: u32| has_decoder || has.iter().all(|(other, _)| *other != number);
        let numbered = self.numbered.iter().filter(|(number, _)| is_free(*number));
        let mut missing: Vec<AddedToken> = numbered.map(|(_, token)| token.clone()).collect();
        missing.retain(|token| has.iter().all(|(_, other)| other != token));
        for token in self.special() {
            let mut known = has.iter().map(|(_, token)| token).chain(&missing);
            if known.all(|other| other.content != token.content) {
                missing.push(token.clone());
            }
        }
        let is_named =
            |token: &AddedToken| self.named.iter().any(|(_, named)| named.content == token.content);
        let changed = has.iter().filter(|(_, token)| !token.special && is_named(token));
        missing.extend(changed.map(|(_, token)| token.clone()));
        for token in &mut missing {
            token.special |= is_named(token);
        }
        missing
    }
}

impl Files {
    /// The tokens with names, in the order in which they are added.
    fn named(&self) -> Vec<(String, AddedToken)> {
        let is_own = |name: &str| name.ends_with("_token") && !NAMES.contains(&name);
        let mut named = Vec::new();
        let mut push = |name: &str, value: &Value| {
            if let Some(token) = token(value) {
                named.push((name.to_owned(), token));
            }
        };
        for name in NAMES {
            match self.map.get(name).or_else(|| self.config.get(name)) {
                Some(value) => push(name, value),
                None => {
                    let usual = self.usual.iter().find(|(usual, _)| *usual == name);
                    usual.iter().for_each(|(_, text)| push(name, &Value::from(text.as_str())));
                }
            }
        }
        let of_config = self.config.0.iter().filter(|(name, _)| is_own(name));
        let (objects, texts): (Vec<_>, Vec<_>) = of_config.partition(|(_, value)| value.is_object());
        let of_map = self.map.0.iter().filter(|(name, _)| is_own(name));
        for (name, value) in objects.into_iter().chain(of_map).chain(texts) {
            push(name, value);
        }
        named
    }

    /// The special tokens without names. A list of transformers 4 counts where there is none of transformers
    /// 5; in `special_tokens_map.json` only where the settings have none at all.
    fn extra(&self) -> Vec<&Value> {
        let (own, older) = (self.config.get(EXTRA), self.config.get(ADDITIONAL));
        let is_empty = own.is_none_or(|value| value.is_null() || *value == Value::Array(Vec::new()));
        let of_config = if is_empty { older } else { own };
        let of_map = self.map.get(EXTRA);
        let of_older_map = self.map.get(ADDITIONAL);
        let of_older_map = of_older_map.filter(|_| own.or(older).or(of_map).is_none());
        let all = [of_config, of_map, of_older_map].into_iter().flatten();
        let all = all.filter_map(Value::as_array);
        all.flatten().collect()
    }
}

/// A token: a text, which is special, or an object with its `content` and how it is found.
fn token(value: &Value) -> Option<AddedToken> {
    if let Some(text) = value.as_str() {
        return Some(AddedToken::from(text, true));
    }
    let is = |key: &str| value[key].as_bool();
    let special = is("special").unwrap_or(false);
    Some(AddedToken {
        content: value["content"].as_str()?.to_owned(),
        single_word: is("single_word").unwrap_or(false),
        lstrip: is("lstrip").unwrap_or(false),
        rstrip: is("rstrip").unwrap_or(false),
        normalized: is("normalized").unwrap_or(!special),
        special,
    })
}

fn in_order(mut all: Vec<(u32, AddedToken)>) -> Vec<(u32, AddedToken)> {
    all.sort_by_key(|(number, _)| *number);
    all
}
