//! The settings of a config: all sections, and what several keys say together.

use std::collections::HashMap;

use serde::Serialize;
use toml::Table;

use super::kinds;
use super::sections::{Checkpoint, Data, DataKind, Launch, Metrics, Model, Optimizer, Pipeline, Train};
use crate::error::{ConfigError, Error, Origin, Result, ValueProblem};

/// Rows of a micro-batch when nobody sets them.
const MICRO_BATCH_SIZE: usize = 8;

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
    pub(super) origins: HashMap<String, Origin>,
}

impl Config {
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

    pub(super) fn table(&self) -> Result<Table> {
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

    /// What the loss is measured in, and what it is the mean of: nats a token or image, as it is a
    /// cross-entropy.
    pub fn loss_unit(&self) -> (&'static str, &'static str) {
        match self.data.kind {
            DataKind::Idx => ("nats", "image"),
            DataKind::Text | DataKind::Tokens => ("nats", "token"),
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
