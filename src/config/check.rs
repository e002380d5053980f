//! Values that fit their key and still make no sense.

use std::path::PathBuf;

use pipewright_stages::DType;

use super::sections::{LearningRateSchedule, ModelKind};
use super::values::{Balanced, Partition, Paths};
use super::{Config, DataKind, limits};
use crate::data::Share;
use crate::error::Result;

/// Settles keys that say the same thing in two ways: the one from the stronger source counts.
pub(super) fn reconcile(config: &mut Config) -> Result<()> {
    if config.pipeline.batch_size.is_some()
        && config.is_stronger("pipeline.micro_batch_size", "pipeline.batch_size")
    {
        config.pipeline.batch_size = None;
    }
    if config.is_stronger("pipeline.batch_size", "pipeline.micro_batch_size") {
        config.pipeline.micro_batch_size = None;
    }
    if let Partition::Lists(lists) = &config.pipeline.partition {
        if config.is_stronger("pipeline.stages", "pipeline.partition") {
            config.pipeline.partition = Partition::Named(Balanced::Balanced);
        } else if !config.origins.contains_key("pipeline.stages")
            || config.is_stronger("pipeline.partition", "pipeline.stages")
        {
            config.pipeline.stages = lists.len();
        }
    }
    Ok(())
}

/// Refuses what can be known to fail without looking at the data.
pub(super) fn check(config: &Config) -> Result<()> {
    positive(config)?;
    limits::check(config)?;
    model(config)?;
    data(config)?;
    pipeline(config)?;
    optimizer(config)?;
    train(config)?;
    launch(config)
}

impl Config {
    /// Whether both keys were set, the first by a stronger source.
    fn is_stronger(&self, key: &str, than: &str) -> bool {
        match (self.origins.get(key), self.origins.get(than)) {
            (Some(key), Some(than)) => key.is_stronger(than),
            _ => false,
        }
    }

    /// Refuses a key's value unless it holds what it must.
    pub(crate) fn require(&self, holds: bool, key: &str, problem: impl FnOnce() -> String) -> Result<()> {
        if holds {
            Ok(())
        } else {
            Err(self.refuse(key, problem()))
        }
    }

    /// Refuses a number of `[optimizer]` that is not finite or does not hold what it must.
    fn number(&self, key: &str, value: f64, holds: bool, must: &str) -> Result<()> {
        self.require(holds && value.is_finite(), &format!("optimizer.{key}"), || {
            format!("{value} makes no sense: {must}")
        })
    }
}

/// Counts of which there must be one at least.
fn positive(config: &Config) -> Result<()> {
    let (model, pipeline, train) = (&config.model, &config.pipeline, &config.train);
    let counts = [
        ("model.vocab", Some(model.vocab as u64)),
        ("model.dim", Some(model.dim as u64)),
        ("model.layers", Some(model.layers as u64)),
        ("model.heads", Some(model.heads as u64)),
        ("data.seq", Some(config.data.seq as u64)),
        ("pipeline.stages", Some(pipeline.stages as u64)),
        ("pipeline.chunks", pipeline.chunks.map(u64::from)),
        ("pipeline.micro_batches", Some(pipeline.micro_batches.into())),
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
        ("train.print_every", Some(train.print_every)),
        (
            "train.validation_micro_batches",
            train.validation_micro_batches.map(u64::from),
        ),
        ("checkpoint.keep", Some(config.checkpoint.keep as u64)),
        ("launch.deadline", Some(config.launch.deadline)),
    ];
    counts.into_iter().try_for_each(|(key, count)| {
        config.require(count != Some(0), key, || "is 0: set it to 1 or more".to_owned())
    })
}

fn model(config: &Config) -> Result<()> {
    let model = &config.model;
    config.require((0.0..1.0).contains(&model.dropout), "model.dropout", || {
        format!(
            "{} is no probability below 1: choose from 0 to 0.9",
            model.dropout
        )
    })?;
    match model.kind {
        ModelKind::Gpt => config.require(model.dim.is_multiple_of(model.heads), "model.heads", || {
            let divisors = (1..=model.dim.min(64)).filter(|heads| model.dim.is_multiple_of(*heads));
            let divisors: Vec<_> = divisors.map(|heads| heads.to_string()).collect();
            format!(
                "model.dim {} is not divisible by {} heads: choose from {}",
                model.dim,
                model.heads,
                divisors.join(", ")
            )
        }),
        ModelKind::Mlp => config.require(
            model.sizes.0.len() >= 2 && !model.sizes.0.contains(&0),
            "model.sizes",
            || {
                format!(
                    "{:?}: give the widths of input and output at least, each 1 or more",
                    model.sizes.0
                )
            },
        ),
    }
}

fn data(config: &Config) -> Result<()> {
    let data = &config.data;
    let takes_images = config.model.kind == ModelKind::Mlp;
    config.require(takes_images == (data.kind == DataKind::Idx), "data.kind", || {
        if takes_images {
            "a model of kind \"mlp\" takes images: set data.kind = \"idx\"".to_owned()
        } else {
            "a model of kind \"gpt\" takes tokens: set data.kind to \"text\" or \"tokens\"".to_owned()
        }
    })?;
    let in_program = |path: &PathBuf| path.to_string_lossy().starts_with(Paths::IN_PROGRAM);
    config.require(
        !data.path.0.iter().any(in_program) || (data.path.is_built_in() && data.kind == DataKind::Text),
        "data.path",
        || {
            format!(
                "the data in the program is \"{}\", by itself and with data.kind = \"text\"",
                Paths::BUILT_IN
            )
        },
    )?;
    match data.validation {
        Share::Count(_) => Ok(()),
        Share::Fraction(fraction) => {
            config.require((0.0..1.0).contains(&fraction), "data.validation", || {
                format!(
                    "{fraction} is neither a fraction from 0 to below 1 nor a whole number of tokens or rows"
                )
            })
        }
    }
}

fn pipeline(config: &Config) -> Result<()> {
    dtype(config)?;
    let pipeline = &config.pipeline;
    if let Some(batch) = pipeline.batch_size {
        let micro_batches = pipeline.micro_batches as usize;
        config.require(batch.is_multiple_of(micro_batches), "pipeline.batch_size", || {
            format!(
                "a batch of {batch} cannot be divided into {micro_batches} micro-batches: take {} or {} rows, or \
                 another pipeline.micro_batches",
                (batch / micro_batches).max(1) * micro_batches,
                (batch / micro_batches + 1) * micro_batches,
            )
        })?;
        let size = batch / micro_batches;
        config.require(
            pipeline.micro_batch_size.is_none_or(|given| given == size),
            "pipeline.micro_batch_size",
            || {
                let each = format!(
                    "a batch of {batch} over pipeline.micro_batches {micro_batches} makes {size} each"
                );
                format!("{each}: set this or pipeline.batch_size")
            },
        )?;
    }
    match &pipeline.partition {
        Partition::Lists(lists) => {
            config.require(lists.len() == pipeline.stages, "pipeline.partition", || {
                format!(
                    "the list has {}, pipeline.stages is {}: give one list a stage",
                    lists.len(),
                    pipeline.stages
                )
            })
        }
        Partition::Named(_) => Ok(()),
    }
}

fn optimizer(config: &Config) -> Result<()> {
    let optimizer = &config.optimizer;
    let (rate, eps, clip) = (optimizer.learning_rate, optimizer.eps, optimizer.clip);
    let decay = optimizer.weight_decay;
    let above = "it must be above 0";
    let share = |value: f64| (0.0..1.0).contains(&value);
    config.number("learning_rate", rate, rate > 0.0, above)?;
    for beta in [optimizer.betas.0, optimizer.betas.1] {
        config.number("betas", beta, share(beta), "both must be from 0 to below 1")?;
    }
    config.number("eps", eps, eps > 0.0, above)?;
    let momentum = optimizer.momentum;
    config.number(
        "momentum",
        momentum,
        share(momentum),
        "it must be from 0 to below 1",
    )?;
    config.number("weight_decay", decay, decay >= 0.0, "it must be 0 or more")?;
    config.number("clip", clip, clip >= 0.0, "it must be 0 (no clipping) or more")?;
    match optimizer.schedule {
        LearningRateSchedule::Constant => Ok(()),
        LearningRateSchedule::Cosine => cosine(config),
    }
}

fn cosine(config: &Config) -> Result<()> {
    let optimizer = &config.optimizer;
    let (floor, steps) = (optimizer.min_learning_rate, config.train.steps);
    let holds = (0.0..=optimizer.learning_rate).contains(&floor);
    let must = "it must be from 0 to optimizer.learning_rate";
    config.number("min_learning_rate", floor, holds, must)?;
    config.require(optimizer.warmup_steps <= steps, "optimizer.warmup_steps", || {
        format!(
            "{} steps of warm-up do not fit into train.steps = {steps}: lower it or train longer",
            optimizer.warmup_steps
        )
    })
}

fn train(config: &Config) -> Result<()> {
    let name = &config.train.name;
    let plain = !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\\']);
    config.require(plain, "train.name", || {
        format!("\"{name}\" cannot name a folder: use a name without slashes that does not start with a dot")
    })
}

fn launch(config: &Config) -> Result<()> {
    let Some(address) = &config.launch.address else {
        return Ok(());
    };
    let parts = address.rsplit_once(':');
    let whole =
        parts.is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0));
    config.require(whole, "launch.address", || {
        format!("\"{address}\" is no host and port: write \"host:port\", such as \"127.0.0.1:29500\"")
    })
}

/// Refuses `bf16` where no rank can compute in it.
fn dtype(config: &Config) -> Result<()> {
    let wanted = config.pipeline.dtype == DType::Bf16;
    config.require(!wanted || config.pipeline.devices.has_gpu(), "pipeline.dtype", || {
        "\"bf16\" is for GPUs, and all ranks are on the CPU: set this to \"f32\", or pipeline.devices to GPUs such as \
         \"cuda:0\""
            .to_owned()
    })
}
