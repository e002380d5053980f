//! The optimizer, the loss and the learning rate; and the pipeline made of all parts.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use pipewright::stages::loss::{AnyLoss, CrossEntropy, PairwiseReward, Preference};
use pipewright::stages::optimizer::{LearningRate, Optimizer};
use pipewright::stages::{RecomputedStage, Sequential};

use super::{TrainingData, places_of_all, stages};
use crate::config::{Auto, Config, LearningRateSchedule, Objective, SyncKind, WarnOfStall};
use crate::error::{Result, ValueProblem};
use pipewright::data::IGNORED;
use pipewright::fabric::{Crew, World};
use pipewright::pipeline::{Pipeline, StallWarning, SyncMode};
use pipewright::plan::Replicas;
use pipewright::privacy::{Accountant, Privacy};
use pipewright::situation::Stall;

/// Starts the pipeline of a config, with the schedules of these replicas. `counts` are the layers of each
/// stage.
///
/// # Errors
/// As for [`places_of_all`], [`stages`] and [`PipelineBuilder::launch`](pipewright::PipelineBuilder::launch).
pub fn launch(
    config: &Config,
    data: &TrainingData,
    counts: &[usize],
    replicas: &Replicas,
    world: Option<World>,
) -> Result<Pipeline<RecomputedStage<Sequential>>> {
    launch_with_listener(config, data, counts, replicas, world, |_| {}, |_, _| Ok(()))
}

/// As [`launch`]. `on_stall` is told of stalls, also while the pipeline starts. `fits`: see
/// [`PipelineBuilder::fits`](pipewright::PipelineBuilder::fits).
///
/// # Errors
/// As for [`launch`].
pub fn launch_with_listener(
    config: &Config,
    data: &TrainingData,
    counts: &[usize],
    replicas: &Replicas,
    world: Option<World>,
    on_stall: impl Fn(&Stall) + Send + Sync + 'static,
    fits: impl Fn(Option<&Crew>, Option<&[usize]>) -> Result<()> + Send + Sync + 'static,
) -> Result<Pipeline<RecomputedStage<Sequential>>> {
    let schedules = (0..replicas.count()).map(|replica| replicas.schedule(replica).clone());
    let snapshot_every = NonZeroU32::new(config.train.snapshot_every).expect("checked: it is not 0");
    let mut builder = Pipeline::builder()
        .places(places_of_all(config, replicas.ranks())?)
        .replica_schedules(schedules.collect())
        .stages(stages(config, counts)?)
        .recut_by({
            let config = config.clone();
            move |counts| Ok(stages(&config, counts)?)
        })
        .fits(move |crew, counts| Ok(fits(crew, counts)?))
        .loss(loss(config)?)
        .data(Arc::clone(&data.train))
        .map(config.launch.map)
        .gradient_groups(config.gradient_groups())
        .shards(config.pipeline.shards)
        .optimizer(optimizer(config))
        .sharded(config.optimizer.sharded)
        .sums(config.pipeline.sums)
        .state_on_host(config.optimizer.state_on_host)
        .sync(match config.pipeline.sync {
            SyncKind::Reduce => SyncMode::Reduce,
            SyncKind::Server => SyncMode::Server { max_staleness: config.pipeline.max_staleness },
        })
        .barrier(config.pipeline.barrier)
        .learning_rate(learning_rate(config))
        .threads_per_rank(config.pipeline.threads_per_rank)
        .pin(config.pipeline.pin)
        .stall_warning(match config.pipeline.stall_warning {
            WarnOfStall::Named(Auto::Auto) => StallWarning::ByTimes,
            WarnOfStall::Seconds(0.0) => StallWarning::Never,
            WarnOfStall::Seconds(seconds) => StallWarning::After(Duration::from_secs_f64(seconds)),
        })
        .stall_limit(match config.pipeline.stall_limit {
            0 => None,
            seconds => Some(Duration::from_secs(seconds)),
        })
        .on_stall(on_stall)
        .restarts(config.train.restarts, snapshot_every)
        .config(config.resolved_toml()?);
    if config.optimizer.clip > 0.0 {
        builder = builder.clip(config.optimizer.clip);
    }
    if let Some(privacy) = privacy(config)? {
        builder = builder.privacy(privacy);
    }
    if let Some(world) = world {
        builder = builder.world(world);
    }
    Ok(builder.launch()?)
}

/// The loss. Cross-entropy of a model of tokens has a perplexity. Rows with the target [`IGNORED`] do not
/// count.
///
/// # Errors
/// When the label smoothing rounds to 1, or to a half for preferences; or when `train.beta` rounds to 0.
pub fn loss(config: &Config) -> Result<AnyLoss> {
    let (smoothing, groups) = (config.optimizer.label_smoothing as f32, config.shard_groups());
    let refuse = |key: &str, error| config.refuse(key, ValueProblem::caused(error));
    let smoothed = |error| refuse("optimizer.label_smoothing", error);
    let beta = |error| refuse("train.beta", error);
    let preference = match config.train.objective {
        Objective::CrossEntropy => {
            let loss = CrossEntropy::ignoring(IGNORED).smoothed(smoothing).map_err(smoothed)?;
            let loss = loss.with_shard_groups(groups)?;
            return Ok(AnyLoss::new(if config.reads_tokens() { loss.of_tokens() } else { loss }));
        }
        Objective::Dpo => Preference::dpo(config.train.beta as f32).map_err(beta)?,
        Objective::Ipo => Preference::ipo(config.train.beta as f32).map_err(beta)?,
        Objective::Reward => {
            config.require(
                smoothing == 0.0,
                "optimizer.label_smoothing",
                || "the loss of rewards has none: set it to 0, or take train.objective = \"dpo\"",
            )?;
            return Ok(AnyLoss::new(PairwiseReward::default()));
        }
    };
    let preference = preference.smoothed(smoothing).map_err(smoothed)?;
    Ok(AnyLoss::new(preference.with_shard_groups(groups)?))
}

/// How gradients are clipped, and the noise, if the training is private.
fn privacy(config: &Config) -> Result<Option<Privacy>> {
    let Some(clip) = config.privacy.clip else {
        return Ok(None);
    };
    let seed = config.noise_secret()?.map_or(0, |secret| Privacy::seed_of(&secret));
    Ok(Some(Privacy { clip, noise: config.privacy.noise, seed }))
}

/// What counts the privacy that a training on this data spends, if it is private.
pub fn accountant(config: &Config, data: &TrainingData) -> Option<Accountant> {
    let samples = data.samples.filter(|samples| config.is_private() && *samples > 0)?;
    let rate = f64::from(config.pipeline.micro_batches) / samples as f64;
    Some(Accountant::new(config.privacy.noise, rate, config.privacy.delta))
}

/// The optimizer.
pub fn optimizer(config: &Config) -> Box<dyn Optimizer> {
    config.optimizer.made()
}

/// The learning rate over the steps.
pub fn learning_rate(config: &Config) -> LearningRate {
    let (total_steps, optimizer) = (config.train.steps, &config.optimizer);
    let (peak, floor) = (optimizer.learning_rate, optimizer.min_learning_rate);
    let warmup_steps = optimizer.warmup_steps;
    match optimizer.schedule {
        LearningRateSchedule::Constant => LearningRate::Constant(peak),
        LearningRateSchedule::Cosine => LearningRate::WarmupCosine { peak, floor, warmup_steps, total_steps },
        LearningRateSchedule::Linear => LearningRate::WarmupLinear { peak, floor, warmup_steps, total_steps },
        LearningRateSchedule::Wsd => {
            LearningRate::Wsd { peak, floor, warmup_steps, decay_steps: optimizer.decay_steps, total_steps }
        }
    }
}
