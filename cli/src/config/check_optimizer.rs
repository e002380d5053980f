//! What `[optimizer]` may not say.

use super::{Config, LearningRateSchedule, SyncKind};
use crate::error::Result;
use crate::error::{OptimizerProblem, ValueProblem};

/// Refuses settings that cannot be.
pub(super) fn check(config: &Config) -> Result<()> {
    let optimizer = &config.optimizer;
    let whole = optimizer.needs_whole_parameters();
    config.require(!(whole && optimizer.sharded), "optimizer.sharded", || {
        OptimizerProblem::WholeParameters.into()
    })?;
    let sharded = optimizer.sharded && !optimizer.may_be_sharded();
    config.require(!sharded, "optimizer.sharded", || {
        OptimizerProblem::NothingToShard.into()
    })?;
    let server = config.pipeline.replicas > 1 && config.pipeline.sync == SyncKind::Server;
    config.require(!(whole && server), "pipeline.sync", || {
        OptimizerProblem::WholeParameters.into()
    })?;
    let (rate, eps, clip) = (optimizer.learning_rate, optimizer.eps, optimizer.clip);
    let (momentum, decay) = (optimizer.momentum(), optimizer.weight_decay);
    let (first, second) = optimizer.betas();
    let (above, below) = ("it must be above 0", "it must be from 0 to below 1");
    let smoothing = optimizer.label_smoothing;
    let share = |value: f64| (0.0..1.0).contains(&value);
    for (key, value, holds, must) in [
        ("learning_rate", rate, rate > 0.0, above),
        ("betas", first, share(first), "both must be from 0 to below 1"),
        ("betas", second, share(second), "both must be from 0 to below 1"),
        ("eps", eps, eps > 0.0, above),
        ("momentum", momentum, share(momentum), below),
        ("label_smoothing", smoothing, share(smoothing), below),
        ("weight_decay", decay, decay >= 0.0, "it must be 0 or more"),
        ("clip", clip, clip >= 0.0, "it must be 0 (no clipping) or more"),
    ] {
        number(config, key, value, holds, must)?;
    }
    match optimizer.schedule {
        LearningRateSchedule::Constant => Ok(()),
        LearningRateSchedule::Cosine | LearningRateSchedule::Linear => falling(config, 0),
        LearningRateSchedule::Wsd => falling(config, optimizer.decay_steps),
    }
}

/// `decay` is the number of steps that the schedule itself reserves for the fall.
fn falling(config: &Config, decay: u64) -> Result<()> {
    let optimizer = &config.optimizer;
    let (floor, steps) = (optimizer.min_learning_rate, config.train.steps);
    let holds = (0.0..=optimizer.learning_rate).contains(&floor);
    let must = "it must be from 0 to optimizer.learning_rate";
    number(config, "min_learning_rate", floor, holds, must)?;
    let warmup = optimizer.warmup_steps;
    config.require(warmup <= steps, "optimizer.warmup_steps", || {
        OptimizerProblem::WarmUp { warmup, steps }.into()
    })?;
    let stable = steps - warmup;
    config.require(decay <= stable, "optimizer.decay_steps", || {
        OptimizerProblem::Decay { decay, warmup, steps }.into()
    })
}

/// Refuses a number of `[optimizer]` that is not finite or not within its limits.
fn number(config: &Config, key: &str, value: f64, holds: bool, must: &'static str) -> Result<()> {
    config.require(holds && value.is_finite(), &format!("optimizer.{key}"), || {
        ValueProblem::OutOfRange { value, must }
    })
}
