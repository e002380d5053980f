//! Several sources of data: the tables `[[data.sources]]`.

use std::collections::HashMap;
use std::path::Path;

use toml::Table;

use super::data::Data;
use super::settings::Config;
use super::tree::{Entries, SOURCES, Tree, is_stronger};
use super::values::Paths;
use super::{kinds, read};
use crate::error::{ConfigError, Origin, Result};

/// Keys of `[data]` that are no defaults for its sources.
const OWN: [&str; 5] = ["path", "labels", "validation_path", "share", "name"];

const OF_TOKENS: &str = "sources are of tokens: choose \"text\", \"tokens\", \"jsonl\" or \"parquet\"";

const FOR_A_SOURCE: &str = "it is for a source: write it below a line [[data.sources]]";

/// A source, and where its keys were set.
pub(super) type Source = (Data, HashMap<String, Origin>);

/// The sources of a config. Each has the keys of `[data]`, unless it sets them itself; but what a stronger
/// source of settings says in `[data]` is for all.
pub(super) fn read(tree: &Tree) -> std::result::Result<Vec<Source>, ConfigError> {
    let Some((origin, tables)) = &tree.sources else {
        return Ok(Vec::new());
    };
    let mut unused: Vec<&str> = tree.section("data").map(|(key, _)| key).collect();
    unused.retain(|key| !OWN.contains(key) && !kinds::COMMON.contains(key) && *key != "kind");
    if tree.get("data", "validation_path").is_some() {
        // The other keys of `[data]` are for this data too.
        let kind = kind(&tree.section("data").map(|(key, entry)| (key.to_owned(), entry.clone())).collect())?;
        unused.retain(|key| !kinds::has(&kind, key));
    }
    for key in ["share", "name", "labels"] {
        if let Some(entry) = tree.get("data", key).filter(|entry| !is_stronger(origin, &entry.origin)) {
            let problem = Box::new(FOR_A_SOURCE.into());
            let origin = Some(entry.origin.clone());
            return Err(ConfigError::Value { origin, key: format!("data.{key}"), problem });
        }
    }
    let mut sources = Vec::new();
    for own in tables {
        if let Some(nested) = own.get("sources") {
            let problem = Box::new("a source has no sources itself: remove it".into());
            let origin = Some(nested.origin.clone());
            return Err(ConfigError::Value { origin, key: SOURCES.to_owned(), problem });
        }
        let mut entries = own.clone();
        for (key, entry) in tree.section("data").filter(|(key, _)| !OWN.contains(key)) {
            let is_own = own.get(key).is_some_and(|own| {
                ["kind", "sources"].contains(&key) || !is_stronger(&entry.origin, &own.origin)
            });
            if !is_own {
                entries.insert(key.to_owned(), entry.clone());
            }
        }
        // A key of `[data]` is for those sources which have such a key.
        let kind = kind(&entries)?;
        entries.retain(|key, _| own.contains_key(key) || kinds::has(&kind, key));
        unused.retain(|key| !entries.contains_key(*key));
        sources.push(source(entries)?);
    }
    match unused.first().and_then(|key| tree.get("data", key)) {
        Some(entry) => Err(ConfigError::Other(format!(
            "{}: data.{} is for none of the kinds of the sources in [[data.sources]]: remove it",
            entry.origin, unused[0]
        ))),
        None => Ok(sources),
    }
}

/// The kind of data of these keys.
fn kind(entries: &Entries) -> std::result::Result<String, ConfigError> {
    let kind = entries.get_key_value("kind").map(|(key, entry)| (key.clone(), entry.clone()));
    let data: Data = read::section(&Tree::of("data", kind.into_iter().collect()), "data")?;
    Ok(data.kind.name().to_owned())
}

fn source(entries: Entries) -> std::result::Result<Source, ConfigError> {
    let origins = entries.iter().map(|(key, entry)| (format!("data.{key}"), entry.origin.clone()));
    let origins = origins.collect();
    let mut tree = Tree::of("data", entries);
    let data: Data = read::section(&tree, "data")?;
    let resolved = Table::try_from(&data).expect("checked values are TOML");
    kinds::settle(&mut tree, &Table::from_iter([("data".to_owned(), resolved.into())]))?;
    Ok((data, origins))
}

/// If `data.path` and sources are set, the one from the stronger source counts. Keys that no source can have
/// by itself are checked, and those that follow from the sources are set.
pub(super) fn reconcile(config: &mut Config) -> Result<()> {
    if config.data.sources.is_empty() {
        for (key, is_set) in
            [("data.share", config.data.share.is_some()), ("data.name", config.data.name.is_some())]
        {
            config.require(!is_set, key, || FOR_A_SOURCE)?;
        }
        return Ok(());
    }
    let origin = |key: &str| config.origins.get(key);
    let beats = |key: &str, other: &str| {
        origin(key).is_some_and(|key| origin(other).is_some_and(|other| is_stronger(key, other)))
    };
    if !config.data.path.is_empty() {
        if beats("data.path", SOURCES) {
            config.data.sources.clear();
            config.source_origins.clear();
            return Ok(());
        }
        config.require(
            beats(SOURCES, "data.path"),
            "data.path",
            || "with [[data.sources]], each source has a path of its own: remove one of the two",
        )?;
        config.data.path = Paths::default();
    }
    if !config.data.validation_path.is_empty() {
        let beats = beats("data.validation_path", SOURCES);
        for source in 0..config.data.sources.len() {
            let own = &config.data.sources[source].validation_path;
            let one = config.of_source(source);
            one.require(
                own.is_empty() || beats,
                "data.validation_path",
                || "[data] has one for all sources: remove one of the two",
            )?;
            let is_trained = one.data.share != Some(0.0);
            one.require(
                is_trained,
                "data.share",
                || "with 0, and data.validation_path in [data], nothing uses this source: remove it",
            )?;
            config.data.sources[source].validation_path = Paths::default();
        }
    }
    for source in 0..config.data.sources.len() {
        named(config, source)?;
    }
    Ok(())
}

/// Gives a source a name, and refuses what all sources have in common.
fn named(config: &mut Config, source: usize) -> Result<()> {
    let one = config.of_source(source);
    let data = &config.data.sources[source];
    one.require(!data.kind.has_images(), "data.kind", || OF_TOKENS)?;
    let [seq, tokenizer, seed] = kinds::COMMON.map(|key| format!("data.{key}"));
    for (key, is_equal) in [
        (seq, data.seq == config.data.seq),
        (tokenizer, data.tokenizer.is_none() || data.tokenizer == config.data.tokenizer),
        (seed, data.seed == config.data.seed),
    ] {
        one.require(is_equal, &key, || "all sources have the same: set it in [data]")?;
    }
    let name = data.name.clone().or_else(|| {
        let path = data.path.0.first()?;
        let stem = Path::new(path).file_stem().unwrap_or(path.as_os_str());
        Some(stem.to_string_lossy().into_owned())
    });
    let name = name.unwrap_or_default();
    let before = &config.data.sources[..source];
    let is_new = before.iter().all(|other| other.name.as_deref() != Some(name.as_str()));
    one.require(is_new, "data.name", || {
        format!("two sources are called \"{name}\": give one of them another name")
    })?;
    config.data.sources[source].name = Some(name);
    Ok(())
}

impl Config {
    /// The config of one source of `[[data.sources]]`.
    pub(crate) fn of_source(&self, source: usize) -> Self {
        let mut config = self.clone();
        config.data = self.data.sources[source].clone();
        config.origins.retain(|key, _| !key.starts_with("data."));
        config.origins.extend(self.source_origins[source].clone());
        config
    }
}

/// Refuses sources that cannot be used, one by one and together.
pub(super) fn check(config: &Config, each: &dyn Fn(&Config) -> Result<()>) -> Result<()> {
    for source in 0..config.data.sources.len() {
        let one = config.of_source(source);
        each(&one)?;
        one.require(!one.data.path.is_empty(), "data.path", || {
            format!("source {} of [[data.sources]] has no data: name a file or a folder", source + 1)
        })?;
    }
    let sources = &config.data.sources;
    let of_tokens = sources.is_empty() || !config.data.kind.has_images();
    config.require(of_tokens, "data.kind", || OF_TOKENS)?;
    let has_share = sources.is_empty() || sources.iter().any(|source| source.share != Some(0.0));
    config.require(has_share, SOURCES, || "no source has a share above 0")
}
