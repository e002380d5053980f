//! The model, and its stages.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use pipewright::stages::layers::{Heads, Rope, RopeLayout, RopeScaling, Routing};
use pipewright::stages::models::{Cnn, Gpt, Llama, Mlp, Model, ResNet, UnitSizes};
use pipewright::stages::{Device, Error, Recompute, RecomputedStage, Sequential, StageBuilder, recompute};

use super::held::add_adapters;
use super::rules::{Kinds, frozen, with_rules};
use super::stack;
use crate::config::{self, Config, ModelKind, Partition, RecomputeBy, RopeScalingKind};
use crate::error::Result;
use crate::error::ValueProblem;
use pipewright::pipeline::may_defer_head;
use pipewright::pretrained::{
    Architecture, Family, Head, Target, Weights, open_adapters, open_own, quantised, start_from,
};
use pipewright::schedule::Schedule;

/// The model, before it is cut.
///
/// # Errors
/// When its sizes are impossible, or a rule about what is trained fits nothing.
pub fn model(config: &Config) -> Result<Model> {
    with_rules(config, untrained(config)?, kinds(config)?)?
        .with_wires(config.pipeline.wires)
        .with_shard_groups(config.shard_groups())
        .map_err(|error| config.refuse("pipeline.shard_groups", ValueProblem::caused(error)))
}

/// The model of a config, frozen as a whole: for losses and texts only.
///
/// # Errors
/// As for [`model`].
pub fn frozen_model(config: &Config) -> Result<Model> {
    Ok(frozen(config, untrained(config)?, kinds(config)?)?.with_wires(config.pipeline.wires))
}

/// In which blocks the folder of the model has its matrices.
fn kinds(config: &Config) -> Result<Kinds> {
    match (&config.model.path, architecture(config)) {
        (Some(folder), Some(architecture)) => Ok(quantised(folder, &architecture)?),
        _ => Ok(Kinds::new()),
    }
}

fn untrained(config: &Config) -> Result<Model> {
    let (model, seed) = (&config.model, config.model.seed);
    let model = match (model.kind, architecture(config)) {
        (_, Some(architecture)) => architecture.model().map_err(Into::into),
        (ModelKind::Stack, _) => stack::model(config),
        (ModelKind::Cnn, _) => {
            let channels = model.channels.0.clone();
            let (image, classes) = (config.image(), model.classes);
            Cnn { image, channels, classes, seed }.model().map_err(Into::into)
        }
        (ModelKind::Resnet, _) => {
            let (image, blocks) = (config.image(), model.blocks.0.clone());
            let (width, classes) = (model.width, model.classes);
            ResNet { image, blocks, width, classes, seed }.model().map_err(Into::into)
        }
        _ => {
            let (sizes, dropout) = (model.sizes.0.clone(), model.dropout as f32);
            Mlp { sizes, dropout, seed }.model().map_err(Into::into)
        }
    };
    model.map_err(|error| match error {
        crate::Error::Engine(pipewright::Error::Stage(error)) => {
            config.refuse("model", ValueProblem::caused(error))
        }
        error => error,
    })
}

/// The model of a config, if it is one of tokens.
pub fn architecture(config: &Config) -> Option<Architecture> {
    let model = &config.model;
    if !model.kind.takes_tokens() {
        return None;
    }
    let context = model.context.unwrap_or(config.data.seq);
    let head = if config.gives_rewards() { Head::Reward } else { Head::Tokens };
    Some(match model.kind.family() {
        Some(family) => Architecture::Llama(family, llama(model, family, context), head),
        None => {
            let gpt = Gpt {
                vocab: model.vocab,
                dim: model.dim,
                layers: model.layers,
                heads: model.heads,
                context,
                dropout: model.dropout as f32,
                tied: model.tied,
                seed: model.seed,
            };
            Architecture::Gpt2(gpt, head)
        }
    })
}

fn llama(model: &config::Model, family: Family, context: usize) -> Llama {
    let heads = Heads {
        query: model.heads,
        key_value: model.kv_heads.unwrap_or(model.heads),
        width: model.head_width.unwrap_or(model.dim / model.heads),
    };
    let scaling = match model.rope_scaling {
        RopeScalingKind::None => RopeScaling::None,
        RopeScalingKind::Linear => RopeScaling::Linear { factor: model.rope_factor },
        RopeScalingKind::Llama3 => RopeScaling::Llama3 {
            factor: model.rope_factor,
            low: model.rope_low,
            high: model.rope_high,
            original: model.rope_original,
        },
        RopeScalingKind::Yarn => RopeScaling::Yarn {
            factor: model.rope_factor,
            original: model.rope_original,
            fast: model.rope_fast,
            slow: model.rope_slow,
            attention: model.rope_attention.unwrap_or(0.1 * model.rope_factor.ln() + 1.0),
        },
    };
    Llama {
        vocab: model.vocab,
        dim: model.dim,
        layers: model.layers,
        heads,
        ffn: model.ffn.unwrap_or((8 * model.dim).div_ceil(3).next_multiple_of(64)),
        context,
        rope: Rope { theta: model.rope_theta, scaling, layout: RopeLayout::Halves },
        epsilon: model.norm_epsilon as f32,
        tied: model.tied,
        bias: family == Family::Qwen2,
        head_norms: family == Family::Qwen3,
        window: model.window,
        padding: model.padding_token,
        experts: (family == Family::Mixtral).then_some(Routing {
            experts: model.experts,
            chosen: model.experts_per_token,
            auxiliary: model.auxiliary as f32,
        }),
        seed: model.seed,
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

/// The sizes under a schedule that lets the last stage defer its head.
pub(super) fn sizes(config: &Config) -> Result<Sizes> {
    sizes_of(config, true)
}

/// The sizes under this schedule, with the last stage on this device.
pub(super) fn sizes_under(config: &Config, schedule: &Schedule, last: Device) -> Result<Sizes> {
    sizes_of(config, may_defer_head(schedule, last))
}

fn sizes_of(config: &Config, defers: bool) -> Result<Sizes> {
    let rows = config.micro_batch_size();
    let [numbers, target] = match (config.reads_tokens(), config.model.kind) {
        (true, _) => [config.data.seq; 2],
        (false, ModelKind::Mlp) => [config.model.sizes.0.first().copied().unwrap_or(0), 1],
        (false, _) => [config.image().iter().product(), 1],
    };
    let [input, target] = [numbers, target].map(|numbers| rows * numbers);
    let units = match untrained(config)?.unit_sizes(target, input, defers) {
        Some(units) => with_adapters(config, units, target)?,
        None => stack::unit_sizes(config, rows)?,
    };
    // Two ids more for each answer: see `Preference`.
    let more = if config.learns_pairs() { 2 * rows } else { 0 };
    Ok(Sizes { units, input: input as u64, target: (target + more) as u64 })
}

/// Adds what the adapters of a model hold of a micro-batch of `rows` rows. Several shards keep none of it.
fn with_adapters(config: &Config, mut units: Vec<UnitSizes>, rows: usize) -> Result<Vec<UnitSizes>> {
    if config.lora.rank > 0 && config.pipeline.shards == 1 {
        let model = model(config)?;
        let contents = model.contents()?;
        let parts = model.parts().unwrap_or_default();
        for ((unit, contents), parts) in units.iter_mut().zip(contents).zip(parts) {
            add_adapters(unit, &contents.parameters, parts, rows);
        }
    }
    Ok(units)
}

/// The stages of the model. `counts` are the layers of each. They recompute as `pipeline.recompute` says. If
/// the config has `model.path`, each stage reads its weights from there when it is built.
///
/// # Errors
/// When the counts do not add up to the model's layers, when `pipeline.recompute` is a list for another
/// number of stages, or when the folder does not have the model's tensors.
pub fn stages(config: &Config, counts: &[usize]) -> Result<Vec<StageBuilder<RecomputedStage<Sequential>>>> {
    let (mut stages, how) = cut(config, counts)?;
    if let Some(weights) = weights(config)? {
        let weights = Arc::new(weights);
        let adapters = adapters(config)?.map(Arc::new);
        let start = |stage| start_from(Arc::clone(&weights), adapters.clone(), stage);
        stages = stages.into_iter().map(start).collect();
    }
    let pairs = stages.into_iter().zip(how);
    Ok(pairs.map(|(stage, how)| recompute(stage, how)).collect())
}

/// The weights of the folder `model.path`, if the config has one.
///
/// # Errors
/// When the folder does not have the model's tensors.
pub fn weights(config: &Config) -> Result<Option<Weights>> {
    let open = |folder: &PathBuf| match architecture(config) {
        Some(architecture) => Ok(Weights::open(folder, &architecture)?),
        None => Ok(open_own(folder, &model(config)?.contents()?)?),
    };
    config.model.path.as_ref().map(open).transpose()
}

/// The folder of `model.path`, if quantised matrices of the model are there: checkpoints do not have them.
///
/// # Errors
/// As for [`weights`].
pub fn quantised_base(config: &Config, model: &Model) -> Result<Option<Weights>> {
    if config.model.path.is_none() {
        return Ok(None);
    }
    let contents = model.contents()?;
    let mut parameters = contents.iter().flat_map(|unit| &unit.parameters);
    match parameters.any(|parameter| parameter.quantisation.is_some()) {
        true => weights(config),
        false => Ok(None),
    }
}

/// The adapters that training starts from.
///
/// # Errors
/// When the folder does not have the tensors of these adapters.
pub fn adapters(config: &Config) -> Result<Option<Weights>> {
    let lora = &config.lora;
    match (&lora.path, architecture(config)) {
        (Some(folder), Some(architecture)) if lora.rank > 0 => {
            let targets = adapted(config)?;
            Ok(Some(open_adapters(folder, &architecture, lora.rank, &targets)?))
        }
        _ => Ok(None),
    }
}

/// The layers of a model that have adapters.
///
/// # Errors
/// As for [`model`].
pub fn adapted(config: &Config) -> Result<Vec<Target>> {
    let contents = model(config)?.contents()?;
    let numbers = contents.iter().flat_map(|unit| &unit.parameters);
    let numbers: HashMap<&str, usize> = numbers.map(|one| (one.name.as_str(), one.numbers())).collect();
    let target = |target: &String| {
        let width = |which: &str| {
            let count = numbers.get(format!("{target}.lora_{which}.weight").as_str())?;
            Some(count / config.lora.rank)
        };
        Some((target.clone(), [width("a")?, width("b")?]))
    };
    let targets = contents.iter().flat_map(|unit| &unit.targets);
    Ok(targets.filter_map(target).collect())
}

/// The stages of the model with random weights, and what each recomputes.
///
/// # Errors
/// When the counts do not add up to the model's layers, or when `pipeline.recompute` is a list for another
/// number of stages.
pub(super) fn cut(config: &Config, counts: &[usize]) -> Result<Cut> {
    let stages = model(config)?.cut(counts)?;
    let how = recomputed_by_stage(config, stages.len())?;
    Ok((stages, how))
}

/// A model's stages, and what each recomputes.
type Cut = (Vec<StageBuilder<Sequential>>, Vec<Recompute>);

/// What each of the stages recomputes.
pub(super) fn recomputed_by_stage(config: &Config, stages: usize) -> Result<Vec<Recompute>> {
    let how = match &config.pipeline.recompute {
        RecomputeBy::All(word) => vec![*word; stages],
        RecomputeBy::Each(words) => words.clone(),
    };
    let advice = "one word a stage, or one for all";
    config.require_each("pipeline.recompute", how.len(), stages, advice)?;
    Ok(how)
}

/// How many layers each stage has if their costs are not known: as the config lists them, or balanced by
/// estimates.
pub(super) fn estimated_counts(config: &Config) -> Result<Vec<usize>> {
    let listed = listed_counts(config)?;
    listed.map_or_else(
        || {
            let balanced = model(config)?.balanced(config.pipeline.stages as u32);
            balanced.map_err(|error| config.refuse("pipeline.stages", ValueProblem::caused(error)))
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
    let refuse = |error: Error| config.refuse("pipeline.partition", error.kind.to_string());
    counts.map(Some).map_err(refuse)
}
