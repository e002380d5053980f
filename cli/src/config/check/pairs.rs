//! Checks a config that learns from pairs of answers.

use super::overrides;
use crate::config::settings::OF_DOCUMENTS;
use crate::config::{Config, Data, DataKind, PackingBy};
use crate::error::Result;
use pipewright::data::LossOn;

/// Forgets what a weaker source says of documents, if a stronger one asks for pairs.
pub(super) fn reconcile(config: &mut Config) {
    if !config.learns_pairs() {
        return;
    }
    for key in OF_DOCUMENTS.map(|key| format!("data.{key}")) {
        if overrides(config, "train.objective", &key) {
            config.origins.remove(&key);
            let data = &mut config.data;
            match key.as_str() {
                "data.field" => data.field = Data::default().field,
                "data.loss_on" => data.loss_on = LossOn::default(),
                _ => data.packing = None,
            }
        }
    }
}

/// Refuses what does not go together with pairs of answers.
pub(super) fn check(config: &Config) -> Result<()> {
    if !config.learns_pairs() {
        return Ok(());
    }
    let data = &config.data;
    config.require(
        data.sources.is_empty(),
        "train.objective",
        || "pairs of answers come from one source: name all files in data.path, instead of data.sources",
    )?;
    config.require(matches!(data.kind, DataKind::Jsonl | DataKind::Parquet), "data.kind", || {
        "pairs of answers are records with the fields \"chosen\" and \"rejected\": set data.kind to \
         \"jsonl\" or \"parquet\""
    })?;
    let is_set = |key: &str| config.origins.contains_key(key);
    let is_read = !is_set("data.field") || data.field == "chosen";
    config.require(is_read, "data.field", || {
        "pairs of answers are read from \"chosen\" and \"rejected\", with what stands before both in \
         \"prompt\": leave it out"
    })?;
    config.require(
        !is_set("data.loss_on") || data.loss_on == LossOn::Answers,
        "data.loss_on",
        || "of pairs of answers only the answers count: leave it out",
    )?;
    let is_single = config.packing_of(data) == Some(PackingBy::Single);
    config.require(
        is_single,
        "data.packing",
        || "each answer of a pair has a row of its own: leave it out, or set it to \"single\"",
    )?;
    rewards(config)?;
    let rows = config.micro_batch_size();
    config.require(rows.is_multiple_of(2), config.rows_key(), || {
        format!("a micro-batch of {rows} rows would part the two answers of a pair: take an even number")
    })
}

/// Refuses what the loss of rewards does not have.
fn rewards(config: &Config) -> Result<()> {
    if !config.gives_rewards() {
        return Ok(());
    }
    for (key, count) in
        [("pipeline.shards", config.pipeline.shards), ("pipeline.shard_groups", config.shard_groups())]
    {
        config.require(
            count == 1,
            key,
            || "a reward model has one output, which is not divided: set this to 1",
        )?;
    }
    Ok(())
}
