//! Makes checked settings from text: a file, environment variables and `--set`.

use std::collections::HashMap;
use std::path::Path;

use super::data::Data;
use super::settings::Config;
use super::tree::{SOURCES, Tree};
use super::{check, keys, kinds, pretrained, read, sources};
use crate::error::ConfigError;
use crate::error::{Error, Result};

/// The built-in config: the first example, but for its name, so that both can be trained in one folder.
const BUILT_IN: &str = include_str!("gpt-text.toml");

impl Config {
    /// Reads a file, then the environment, then `--set` arguments (`section.key=value`).
    ///
    /// # Errors
    /// When the file cannot be read, or when a key or value is refused.
    pub fn load(path: &Path, sets: &[String]) -> Result<Self> {
        if path.is_dir() {
            let folder = path.display();
            let go_on = match path.join("run.json").is_file() {
                true => format!("; its run goes on by `pipewright train --resume --run-dir {folder}`"),
                false => String::new(),
            };
            let problem = format!("`{folder}` is a folder, and a config is a file{go_on}");
            return Err(ConfigError::Other(problem).into());
        }
        let text = std::fs::read_to_string(path).map_err(Error::io("read", path))?;
        Self::parse(&path.display().to_string(), &text, &environment(), sets)
    }

    /// The built-in config (`examples/gpt-text.toml`, with the name `first`), then the environment, then
    /// `--set` arguments.
    ///
    /// # Errors
    /// When a key or value is refused.
    pub fn built_in(sets: &[String]) -> Result<Self> {
        let text = BUILT_IN.replace("name = \"gpt-text\"", "name = \"first\"");
        Self::parse("built-in examples/gpt-text.toml", &text, &environment(), sets)
    }

    /// Reads a config from its text, then these environment variables, then `--set` arguments. Messages call
    /// the text `name`.
    ///
    /// # Errors
    /// When a key or value is refused.
    pub fn parse(name: &str, text: &str, environment: &[(String, String)], sets: &[String]) -> Result<Self> {
        let mut tree = Tree::default();
        tree.add_file(name, text)?;
        tree.add_environment(environment)?;
        tree.add_sets(sets)?;
        pretrained::add(&mut tree)?;
        pretrained::add_adapters(&mut tree)?;
        let resolved = Self::of(&tree)?.table()?;
        kinds::settle(&mut tree, &resolved)?;
        let mut config = Self::of(&tree)?;
        check::reconcile(&mut config)?;
        check::check(&config)?;
        Ok(config)
    }

    fn of(tree: &Tree) -> std::result::Result<Self, ConfigError> {
        let mut origins = HashMap::new();
        for (section, _) in keys::all() {
            let places = tree.section(section);
            origins.extend(places.map(|(key, entry)| (format!("{section}.{key}"), entry.origin.clone())));
        }
        let mut data: Data = read::section(tree, "data")?;
        let source_origins;
        (data.sources, source_origins) = sources::read(tree)?.into_iter().unzip();
        if let Some((origin, _)) = &tree.sources {
            origins.insert(SOURCES.to_owned(), origin.clone());
        }
        Ok(Self {
            model: read::section(tree, "model")?,
            lora: read::section(tree, "lora")?,
            data,
            pipeline: read::section(tree, "pipeline")?,
            optimizer: read::section(tree, "optimizer")?,
            train: read::section(tree, "train")?,
            checkpoint: read::section(tree, "checkpoint")?,
            privacy: read::section(tree, "privacy")?,
            metrics: read::section(tree, "metrics")?,
            launch: read::section(tree, "launch")?,
            origins,
            source_origins,
        })
    }
}

/// The environment variables that are text.
pub(crate) fn environment() -> Vec<(String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}
