//! The model, and the stages it is cut into.

use pipewright_stages::models::{Gpt, Mlp, Model};
use pipewright_stages::{Recompute, RecomputedStage, Sequential, StageBuilder, recompute};

use crate::config::{self, Config, ModelKind, Partition, RecomputeBy};
use crate::error::Result;

/// The model, in one piece.
///
/// # Errors
/// When its sizes make no sense.
pub fn model(config: &Config) -> Result<Model> {
    let config::Model {
        vocab,
        dim,
        layers,
        heads,
        tied,
        dropout,
        seed,
        ..
    } = config.model;
    let dropout = dropout as f32;
    let model = match config.model.kind {
        ModelKind::Gpt => Gpt {
            vocab,
            dim,
            layers,
            heads,
            context: config.data.seq,
            dropout,
            tied,
            seed,
        }
        .model(),
        ModelKind::Mlp => Mlp {
            sizes: config.model.sizes.0.clone(),
            dropout,
            seed,
        }
        .model(),
    };
    model.map_err(|error| config.refuse("model", error))
}

/// The model cut into stages of so many layers, which recompute as `pipeline.recompute` says.
///
/// # Errors
/// When the counts do not make up the model, or when a list says for another number of stages what they recompute.
pub fn stages(config: &Config, counts: &[usize]) -> Result<Vec<StageBuilder<RecomputedStage<Sequential>>>> {
    let stages = model(config)?.cut(counts)?;
    let how: Vec<Recompute> = match &config.pipeline.recompute {
        RecomputeBy::All(word) => vec![*word; stages.len()],
        RecomputeBy::Each(words) => words.clone(),
    };
    config.require(how.len() == stages.len(), "pipeline.recompute", || {
        let (words, count) = (how.len(), stages.len());
        format!("the list has {words}, pipeline.stages is {count}: give one word a stage, or one for all")
    })?;
    let pairs = stages.into_iter().zip(how);
    Ok(pairs.map(|(stage, how)| recompute(stage, how)).collect())
}

/// How many layers each stage gets where their costs are not known: as the lists say, or balanced by estimates.
pub(super) fn estimated_counts(config: &Config) -> Result<Vec<usize>> {
    let listed = listed_counts(config)?;
    listed.map_or_else(
        || {
            let balanced = model(config)?.balanced(config.pipeline.stages as u32);
            balanced.map_err(|error| config.refuse("pipeline.stages", error))
        },
        Ok,
    )
}

/// How many layers each stage gets where `pipeline.partition` lists them.
pub(super) fn listed_counts(config: &Config) -> Result<Option<Vec<usize>>> {
    let Partition::Lists(lists) = &config.pipeline.partition else {
        return Ok(None);
    };
    let counts = model(config)?.counts(lists).map_err(|error| {
        let problem = error.to_string();
        let problem = problem.strip_prefix("partition: ").unwrap_or(&problem);
        config.refuse("pipeline.partition", problem)
    });
    counts.map(Some)
}
