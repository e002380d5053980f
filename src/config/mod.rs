//! What a person writes, read and checked: a TOML file, environment variables and `--set`.
//!
//! A later source overrides an earlier one: defaults, then the file, then variables such as
//! `PIPEWRIGHT_MODEL__DIM`, then `--set model.dim=256`. Every key has a default but `data.path`. A key that
//! does not exist, a value of the wrong type and one that makes no sense are refused with the file and line
//! (or the variable, or `--set`), the key and what to do.
//!
//! Paths in a config are relative to the current directory, as they are on a command line, and not to the
//! config file.

mod changes;
mod check;
mod devices;
mod keys;
mod kinds;
mod launch;
mod limits;
mod memory;
mod read;
mod sections;
mod tree;
mod typed;
mod values;

pub use devices::Devices;
pub use launch::processes;
pub use memory::Memory;
pub use sections::{
    Checkpoint, Data, DataKind, Launch, LearningRateSchedule, Metrics, Model, ModelKind, Optimizer,
    OptimizerKind, Pipeline, Train,
};
pub use values::{Balanced, Partition, Paths, RecomputeBy, Sizes};

use std::collections::HashMap;
use std::path::Path;

use serde::Serialize;
use toml::Table;

use crate::error::{ConfigError, Error, Origin, Result, ValueProblem};
use tree::Tree;

/// Rows of a micro-batch when nobody sets them.
const MICRO_BATCH_SIZE: usize = 8;

/// The config used when none is named: the first example.
const BUILT_IN: &str = include_str!("../../examples/gpt-text.toml");

/// A checked config.
#[derive(Clone, Debug, Serialize)]
pub struct Config {
    /// What is trained.
    pub model: Model,
    /// What it is trained on.
    pub data: Data,
    /// How the model is cut and a step is divided.
    pub pipeline: Pipeline,
    /// How gradients become new weights.
    pub optimizer: Optimizer,
    /// How long, and what is said on the way.
    pub train: Train,
    /// When the run is saved.
    pub checkpoint: Checkpoint,
    /// What others can read while the run goes on.
    pub metrics: Metrics,
    /// Where the processes of a run find each other.
    pub launch: Launch,
    /// Where each key that is not at its default was set.
    #[serde(skip)]
    origins: HashMap<String, Origin>,
}

impl Config {
    /// Reads a file, then the environment, then `--set` arguments (`section.key=value`).
    ///
    /// # Errors
    /// When the file cannot be read, or when a key or value is refused.
    pub fn load(path: &Path, sets: &[String]) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(Error::io("read", path))?;
        Self::parse(&path.display().to_string(), &text, &environment(), sets)
    }

    /// The built-in config (`examples/gpt-text.toml`), then the environment, then `--set` arguments.
    ///
    /// # Errors
    /// When a key or value is refused.
    pub fn built_in(sets: &[String]) -> Result<Self> {
        Self::parse("built-in examples/gpt-text.toml", BUILT_IN, &environment(), sets)
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
        Ok(Self {
            model: read::section(tree, "model")?,
            data: read::section(tree, "data")?,
            pipeline: read::section(tree, "pipeline")?,
            optimizer: read::section(tree, "optimizer")?,
            train: read::section(tree, "train")?,
            checkpoint: read::section(tree, "checkpoint")?,
            metrics: read::section(tree, "metrics")?,
            launch: read::section(tree, "launch")?,
            origins,
        })
    }

    /// The whole config with every key that counts, as TOML: what a run directory and a checkpoint keep.
    ///
    /// # Errors
    /// When a number is too large for TOML.
    pub fn resolved_toml(&self) -> Result<String> {
        toml::to_string(&self.kept()?).map_err(|error| ConfigError::from(error).into())
    }

    /// The keys that count and their values.
    pub(crate) fn kept(&self) -> Result<Table> {
        let mut table = self.table()?;
        kinds::strip(&mut table);
        Ok(table)
    }

    fn table(&self) -> Result<Table> {
        Table::try_from(self).map_err(|error| ConfigError::from(error).into())
    }

    /// Rows of a micro-batch.
    pub fn micro_batch_size(&self) -> usize {
        let pipeline = &self.pipeline;
        match pipeline.batch_size {
            Some(batch) => batch / pipeline.micro_batches as usize,
            None => pipeline.micro_batch_size.unwrap_or(MICRO_BATCH_SIZE),
        }
    }

    /// The key that says the rows of a micro-batch.
    pub(crate) fn rows_key(&self) -> &'static str {
        match self.pipeline.batch_size {
            Some(_) => "pipeline.batch_size",
            None => "pipeline.micro_batch_size",
        }
    }

    /// What a step's loss counts: tokens or images.
    pub fn targets(&self) -> u64 {
        let rows = self.micro_batch_size() as u64 * u64::from(self.pipeline.micro_batches);
        match self.data.kind {
            DataKind::Idx => rows,
            DataKind::Text | DataKind::Tokens => rows * self.data.seq as u64,
        }
    }

    /// The word for what a step's loss counts.
    pub fn unit(&self) -> &'static str {
        match self.data.kind {
            DataKind::Idx => "images",
            DataKind::Text | DataKind::Tokens => "tokens",
        }
    }

    /// An error about the value of a key, with the place where it was set.
    pub(crate) fn refuse(&self, key: &str, problem: impl Into<ValueProblem>) -> Error {
        let (key, problem) = (key.to_owned(), problem.into());
        let origin = self.origins.get(&key).cloned();
        ConfigError::Value { origin, key, problem }.into()
    }

    /// Refuses a key's value unless it holds what it must.
    pub(crate) fn require(
        &self,
        holds: bool,
        key: &str,
        problem: impl FnOnce() -> ValueProblem,
    ) -> Result<()> {
        if holds {
            Ok(())
        } else {
            Err(self.refuse(key, problem()))
        }
    }
}

/// The environment variables that are text.
pub(crate) fn environment() -> Vec<(String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}
