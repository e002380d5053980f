//! The model, and its stages.

use pipewright_stages::models::{Gpt, Mlp, Model, UnitSizes};
use pipewright_stages::{Error, Recompute, RecomputedStage, Sequential, StageBuilder, recompute};

use crate::config::{self, Config, ModelKind, Partition, RecomputeBy};
use crate::error::{Result, ValueProblem};

/// The model, before it is cut.
///
/// # Errors
/// When its sizes are impossible.
pub fn model(config: &Config) -> Result<Model> {
    let model = match kind(config) {
        Kind::Gpt(gpt) => gpt.model(),
        Kind::Mlp(mlp) => mlp.model(),
    };
    model.map_err(|error| config.refuse("model", error))
}

/// A kind of model, with its settings.
enum Kind {
    Gpt(Gpt),
    Mlp(Mlp),
}

fn kind(config: &Config) -> Kind {
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
    match config.model.kind {
        ModelKind::Gpt => Kind::Gpt(Gpt {
            vocab,
            dim,
            layers,
            heads,
            context: config.data.seq,
            dropout,
            tied,
            seed,
        }),
        ModelKind::Mlp => Kind::Mlp(Mlp {
            sizes: config.model.sizes.0.clone(),
            dropout,
            seed,
        }),
    }
}

/// The sizes of a model's units and of the data, for one micro-batch, in numbers (not bytes).
pub(super) struct Sizes {
    pub(super) units: Vec<UnitSizes>,
    /// The first stage's input.
    pub(super) input: u64,
    /// The loss's target.
    pub(super) target: u64,
}

pub(super) fn sizes(config: &Config) -> Sizes {
    let rows = config.micro_batch_size();
    match kind(config) {
        Kind::Gpt(gpt) => {
            let tokens = (rows * gpt.context) as u64;
            Sizes {
                units: gpt.unit_sizes(rows),
                input: tokens,
                target: tokens,
            }
        }
        Kind::Mlp(mlp) => Sizes {
            units: mlp.unit_sizes(rows),
            input: (rows * mlp.sizes.first().copied().unwrap_or(0)) as u64,
            target: rows as u64,
        },
    }
}

/// The stages of the model. `counts` are the layers of each. They recompute as `pipeline.recompute` says.
///
/// # Errors
/// When the counts do not add up to the model's layers, or when `pipeline.recompute` is a list for another
/// number of stages.
pub fn stages(config: &Config, counts: &[usize]) -> Result<Vec<StageBuilder<RecomputedStage<Sequential>>>> {
    let stages = model(config)?.cut(counts)?;
    let how = recomputed_by_stage(config, stages.len())?;
    let pairs = stages.into_iter().zip(how);
    Ok(pairs.map(|(stage, how)| recompute(stage, how)).collect())
}

/// What each of the stages recomputes.
pub(super) fn recomputed_by_stage(config: &Config, stages: usize) -> Result<Vec<Recompute>> {
    let how = match &config.pipeline.recompute {
        RecomputeBy::All(word) => vec![*word; stages],
        RecomputeBy::Each(words) => words.clone(),
    };
    config.require(how.len() == stages, "pipeline.recompute", || {
        ValueProblem::OtherStages {
            has: how.len(),
            stages,
            advice: "one word a stage, or one for all",
        }
    })?;
    Ok(how)
}

/// How many layers each stage has if their costs are not known: as the config lists them, or balanced by
/// estimates.
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

/// How many layers each stage has if `pipeline.partition` lists them.
pub(super) fn listed_counts(config: &Config) -> Result<Option<Vec<usize>>> {
    let Partition::Lists(lists) = &config.pipeline.partition else {
        return Ok(None);
    };
    let counts = model(config)?.counts(lists);
    let refuse = |error: Error| config.refuse("pipeline.partition", ValueProblem::Partition(error.kind));
    counts.map(Some).map_err(refuse)
}
