//! Checks values that have the right type but are not possible.

use std::path::PathBuf;

use super::tree::is_stronger;
use super::values::{Balanced, Partition, Paths, WarnOfStall};
use super::{Config, DataKind, check_optimizer, limits, sizes};
use crate::error::Result;
use crate::error::{RuleProblem, ValueProblem};
use pipewright::data::Share;

/// If two keys set the same thing, the one from the stronger source counts.
pub(super) fn reconcile(config: &mut Config) -> Result<()> {
    if config.pipeline.batch_size.is_some()
        && overrides(config, "pipeline.micro_batch_size", "pipeline.batch_size")
    {
        config.pipeline.batch_size = None;
    }
    if overrides(config, "pipeline.batch_size", "pipeline.micro_batch_size") {
        config.pipeline.micro_batch_size = None;
    }
    if let Partition::Lists(lists) = &config.pipeline.partition {
        if overrides(config, "pipeline.stages", "pipeline.partition") {
            config.pipeline.partition = Partition::Named(Balanced::Balanced);
        } else if !config.origins.contains_key("pipeline.stages")
            || overrides(config, "pipeline.partition", "pipeline.stages")
        {
            config.pipeline.stages = lists.len();
        }
    }
    Ok(())
}

/// Refuses everything that can be known to fail without the data.
pub(super) fn check(config: &Config) -> Result<()> {
    positive(config)?;
    limits::check(config)?;
    sizes::check(config)?;
    data(config)?;
    pipeline(config)?;
    check_optimizer::check(config)?;
    lora(config)?;
    groups(config)?;
    train(config)?;
    launch(config)
}

/// Whether both keys were set, the first by a stronger source.
fn overrides(config: &Config, key: &str, than: &str) -> bool {
    match (config.origins.get(key), config.origins.get(than)) {
        (Some(key), Some(than)) => is_stronger(key, than),
        _ => false,
    }
}

/// Counts that must be 1 or more.
fn positive(config: &Config) -> Result<()> {
    let (model, pipeline, train) = (&config.model, &config.pipeline, &config.train);
    let counts = [
        ("model.vocab", Some(model.vocab as u64)),
        ("model.dim", Some(model.dim as u64)),
        ("model.layers", Some(model.layers as u64)),
        ("model.heads", Some(model.heads as u64)),
        ("model.kv_heads", model.kv_heads.map(|count| count as u64)),
        ("model.head_width", model.head_width.map(|count| count as u64)),
        ("model.ffn", model.ffn.map(|count| count as u64)),
        ("model.experts", Some(model.experts as u64)),
        ("model.experts_per_token", Some(model.experts_per_token as u64)),
        ("model.window", model.window.map(|count| count as u64)),
        ("model.rope_original", Some(model.rope_original as u64)),
        ("model.classes", Some(model.classes as u64)),
        ("model.width", Some(model.width as u64)),
        ("data.seq", Some(config.data.seq as u64)),
        ("pipeline.stages", Some(pipeline.stages as u64)),
        ("pipeline.chunks", pipeline.chunks.map(u64::from)),
        ("pipeline.micro_batches", Some(pipeline.micro_batches.into())),
        ("pipeline.replicas", Some(pipeline.replicas.into())),
        (
            "pipeline.gradient_groups",
            pipeline.gradient_groups.map(u64::from),
        ),
        (
            "pipeline.micro_batch_size",
            pipeline.micro_batch_size.map(|size| size as u64),
        ),
        ("pipeline.batch_size", pipeline.batch_size.map(|size| size as u64)),
        (
            "pipeline.threads_per_rank",
            Some(pipeline.threads_per_rank as u64),
        ),
        ("train.steps", Some(train.steps)),
        ("train.sample_tokens", Some(train.sample_tokens as u64)),
        ("train.print_every", Some(train.print_every)),
        ("train.snapshot_every", Some(train.snapshot_every.into())),
        (
            "train.validation_micro_batches",
            train.validation_micro_batches.map(u64::from),
        ),
        ("checkpoint.keep", Some(config.checkpoint.keep as u64)),
        ("launch.deadline", Some(config.launch.deadline)),
    ];
    counts
        .into_iter()
        .try_for_each(|(key, count)| config.require(count != Some(0), key, || ValueProblem::Zero))
}

fn data(config: &Config) -> Result<()> {
    let data = &config.data;
    let takes_images = !config.reads_tokens();
    config.require(takes_images == data.kind.has_images(), "data.kind", || {
        let model = config.model.kind.name();
        let (takes, to) = match takes_images {
            true => ("images", "to \"idx\" or \"cifar10\""),
            false => ("tokens", "to \"text\", \"tokens\", \"jsonl\" or \"parquet\""),
        };
        ValueProblem::OtherData { model, takes, to }
    })?;
    let in_program = |path: &PathBuf| path.to_string_lossy().starts_with(Paths::IN_PROGRAM);
    let is_built_in = data.path.is_built_in() && data.kind == DataKind::Text;
    config.require(
        is_built_in || !data.path.0.iter().any(in_program),
        "data.path",
        || ValueProblem::BuiltInData(Paths::BUILT_IN),
    )?;
    tokenizer(config)?;
    match data.validation {
        Share::Fraction(fraction) => {
            config.require((0.0..1.0).contains(&fraction), "data.validation", || {
                ValueProblem::NoShare(fraction)
            })
        }
        Share::Count(_) => Ok(()),
    }
}

/// Refuses documents without a tokenizer, or without a reader.
fn tokenizer(config: &Config) -> Result<()> {
    let data = &config.data;
    let is_set = data.tokenizer.is_some();
    let needed = matches!(data.kind, DataKind::Jsonl | DataKind::Parquet);
    config.require(is_set || !needed, "data.tokenizer", || ValueProblem::NoTokenizer)?;
    let has_parquet = cfg!(feature = "parquet") || data.kind != DataKind::Parquet;
    config.require(has_parquet, "data.kind", || ValueProblem::NoFeature("parquet"))
}

fn pipeline(config: &Config) -> Result<()> {
    let pipeline = &config.pipeline;
    if let Some(batch) = pipeline.batch_size {
        batch_size(config, batch)?;
    }
    config.check_groups()?;
    staleness(config)?;
    stall_warning(config)?;
    let Partition::Lists(lists) = &pipeline.partition else {
        return Ok(());
    };
    config.require(lists.len() == pipeline.stages, "pipeline.partition", || {
        ValueProblem::OtherStages {
            has: lists.len(),
            stages: pipeline.stages,
            advice: "one list a stage",
        }
    })
}

/// Refuses a time that is none.
fn stall_warning(config: &Config) -> Result<()> {
    let WarnOfStall::Seconds(value) = config.pipeline.stall_warning else {
        return Ok(());
    };
    let holds = (0.0..=limits::YEAR as f64).contains(&value);
    config.require(holds, "pipeline.stall_warning", || ValueProblem::OutOfRange {
        value,
        must: "it must be 0 (never) or more seconds, up to a year",
    })
}

/// Refuses stale weights where they cannot be.
fn staleness(config: &Config) -> Result<()> {
    let model = &config.model;
    let why = match config.max_staleness() {
        0 => return Ok(()),
        _ if model.kind.takes_tokens() && model.tied => {
            "in a model with tied parameters (model.tied), whose copies must stay equal"
        }
        _ if config.pipeline.devices.has_gpu() => "on a GPU, only on cpu",
        _ => return Ok(()),
    };
    Err(config.refuse("pipeline.max_staleness", ValueProblem::NotStale(why)))
}

/// Refuses a batch that does not fit the micro-batches and their rows.
fn batch_size(config: &Config, batch: usize) -> Result<()> {
    let micro_batches = config.pipeline.micro_batches as usize;
    config.require(batch.is_multiple_of(micro_batches), "pipeline.batch_size", || {
        ValueProblem::Batch { batch, micro_batches }
    })?;
    let given = config.pipeline.micro_batch_size;
    let holds = given.is_none_or(|given| given == batch / micro_batches);
    config.require(holds, "pipeline.micro_batch_size", || ValueProblem::MicroBatch {
        batch,
        micro_batches,
    })
}

fn lora(config: &Config) -> Result<()> {
    let lora = &config.lora;
    if lora.rank == 0 {
        let set = |key: &str| config.origins.contains_key(key) && !overrides(config, "lora.rank", key);
        let keys = ["lora.path", "lora.targets", "lora.alpha", "lora.dropout"];
        return match keys.iter().find(|key| set(key)) {
            Some(key) => Err(config.refuse(key, ValueProblem::from(RuleProblem::NoRank))),
            None => Ok(()),
        };
    }
    let has_model = config.model.path.is_some() && config.model.kind.takes_tokens();
    let has_model = lora.path.is_none() || has_model;
    config.require(has_model, "lora.path", || RuleProblem::NoModel.into())?;
    let named = !lora.targets.is_empty();
    config.require(named, "lora.targets", || RuleProblem::NoTargets.into())?;
    let (value, must) = (lora.alpha, "it must be above 0");
    config.require(value > 0.0 && value.is_finite(), "lora.alpha", || {
        ValueProblem::OutOfRange { value, must }
    })?;
    config.require((0.0..1.0).contains(&lora.dropout), "lora.dropout", || {
        ValueProblem::NoProbability(lora.dropout)
    })
}

fn groups(config: &Config) -> Result<()> {
    for group in &config.optimizer.groups {
        let named = !group.parameters.is_empty();
        config.require(named, "optimizer.groups", || RuleProblem::NoParameters.into())?;
        for value in [group.rate, group.weight_decay].into_iter().flatten() {
            let must = "rate and weight_decay must be 0 or more";
            config.require(value >= 0.0 && value.is_finite(), "optimizer.groups", || {
                ValueProblem::OutOfRange { value, must }
            })?;
        }
    }
    Ok(())
}

fn train(config: &Config) -> Result<()> {
    let name = &config.train.name;
    let value = config.train.sample_temperature;
    let holds = (0.0..=limits::TEMPERATURE).contains(&value);
    config.require(holds, "train.sample_temperature", || ValueProblem::OutOfRange {
        value,
        must: "it must be from 0 to 1000",
    })?;
    let plain = !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\\']);
    config.require(plain, "train.name", || ValueProblem::RunName(name.clone()))
}

fn launch(config: &Config) -> Result<()> {
    let Some(address) = &config.launch.address else {
        return Ok(());
    };
    let parts = address.rsplit_once(':');
    let whole =
        parts.is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0));
    config.require(whole, "launch.address", || ValueProblem::Address(address.clone()))
}
