//! What the files beside a `tokenizer.json` say of it.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use serde::de::IgnoredAny;
use tokenizers::AddedToken;

use super::added::{DECODER, EXTRA, Files, Listed};
use super::class::Class;
use super::entries::Entries;
use super::files::{CONFIG, bytes, json};
use super::own_template::OwnTemplate;
use crate::error::Result;

/// What the files beside a `tokenizer.json` say of it. Each of them may be missing.
#[derive(Debug, Default)]
pub(super) struct About {
    /// The tokens that it may lack.
    pub(super) listed: Listed,
    /// Whether `tokenizer_config.json` lists tokens by their numbers.
    pub(super) has_decoder: bool,
    /// Whether special tokens that a text spells out are text.
    pub(super) splits_special: bool,
    /// The templates for chats.
    pub(super) template: Option<OwnTemplate>,
}

impl About {
    /// Reads the files of a folder, beside a `tokenizer.json` with these bytes.
    ///
    /// # Errors
    /// When a file cannot be read, is not JSON, or lists what is no token.
    pub(super) fn read(folder: &Path, tokenizer: &[u8], padding: Option<&str>) -> Result<Self> {
        let path = folder.join(CONFIG);
        let config = json(&path)?;
        let class = Class::of(&config, &json(&folder.join("config.json"))?, tokenizer);
        let mut usual = class.map_or(Vec::new(), Class::names);
        usual.extend(padding.map(|text| ("pad_token", text.to_owned())));
        let (entries, config_extra) = entries(&path)?;
        let mut files = Files { config: entries, config_extra, usual, ..Files::default() };
        let has_decoder = files.config.get(DECODER).is_some();
        if !has_decoder {
            (files.map, files.map_extra) = self::entries(&folder.join("special_tokens_map.json"))?;
            files.older = json(&folder.join("added_tokens.json"))?;
        }
        Ok(Self {
            listed: Listed::read(&path, &files)?,
            has_decoder,
            splits_special: config["split_special_tokens"].as_bool().unwrap_or(false),
            template: OwnTemplate::read(folder, &config)?,
        })
    }

    /// The texts of special tokens by their names, such as `bos_token`.
    pub(super) fn special(&self) -> BTreeMap<String, String> {
        let text = |(name, token): &(String, AddedToken)| (name.clone(), token.content.clone());
        self.listed.named.iter().map(text).collect()
    }
}

/// The entries of a file, in its order, and the entries of its object of tokens with names. Both are empty if
/// it does not exist.
fn entries(path: &Path) -> Result<(Entries, Entries)> {
    let Some(bytes) = bytes(path)? else {
        return Ok(Default::default());
    };
    let entries = |bytes: &[u8]| serde_json::from_slice::<Entries>(bytes).unwrap_or_default();
    // A list has no entries.
    let inside = serde_json::from_slice::<BTreeMap<String, Either>>(&bytes).ok();
    let inside = inside.and_then(|mut all| all.remove(EXTRA));
    let extra = match inside {
        Some(Either::Object(entries)) => entries,
        _ => Entries::default(),
    };
    Ok((entries(&bytes), extra))
}

/// An object, or anything else.
#[derive(Deserialize)]
#[serde(untagged)]
enum Either {
    Object(Entries),
    Other(IgnoredAny),
}
