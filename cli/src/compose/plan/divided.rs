//! Whether a model can be divided among the shards of a rank.

use crate::compose::model::model;
use crate::config::Config;
use crate::error::{Result, ValueProblem};

/// Refuses shards that the model's layers, or the rows of a micro-batch, cannot be divided among.
pub(super) fn check_shards(config: &Config) -> Result<()> {
    check_divided(config)?;
    check_divided_rows(config)
}

/// Refuses shards that the model's layers cannot be divided among.
///
/// # Errors
/// When they cannot. The error names the layer.
pub fn check_divided(config: &Config) -> Result<()> {
    match config.pipeline.shards {
        1 => Ok(()),
        shards => {
            let checked = model(config)?.check_shards(shards);
            checked.map_err(|error| config.refuse("pipeline.shards", ValueProblem::caused(error)))
        }
    }
}

/// Refuses more shards than a micro-batch has rows.
///
/// # Errors
/// When there are more. The error names the key.
pub fn check_divided_rows(config: &Config) -> Result<()> {
    let shards = config.pipeline.shards;
    let rows = config.micro_batch_size() * if config.reads_tokens() { config.data.seq } else { 1 };
    config.require(rows >= shards as usize, "pipeline.shards", || {
        format!(
            "a micro-batch of {rows} rows cannot be divided among {shards} shards: take fewer, or larger \
             micro-batches"
        )
    })
}
