//! The pipeline, made of all parts.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use pipewright::stages::{RecomputedStage, Sequential};

use super::parts::{learning_rate, loss, optimizer, privacy};
use super::{PipelinePlan, TrainingData, changed, places_of_all, stages};
use crate::config::{Auto, Config, SyncKind, WarnOfStall};
use crate::error::Result;
use pipewright::Cut;
use pipewright::fabric::{Crew, World};
use pipewright::pipeline::{Pipeline, StallWarning, SyncMode};
use pipewright::situation::Stall;

/// Starts the pipeline of a config, as it is planned.
///
/// # Errors
/// As for [`places_of_all`], [`stages`] and [`PipelineBuilder::launch`](pipewright::PipelineBuilder::launch).
pub fn launch(
    config: &Config,
    data: &TrainingData,
    plan: &PipelinePlan,
    world: Option<World>,
) -> Result<Pipeline<RecomputedStage<Sequential>>> {
    launch_with_listener(config, data, plan, world, |_| {}, |_, _| Ok(()))
}

/// As [`launch`]. `on_stall` is told of stalls, also while the pipeline starts. `fits`: see
/// [`PipelineBuilder::fits`](pipewright::PipelineBuilder::fits).
///
/// # Errors
/// As for [`launch`].
pub fn launch_with_listener(
    config: &Config,
    data: &TrainingData,
    plan: &PipelinePlan,
    world: Option<World>,
    on_stall: impl Fn(&Stall) + Send + Sync + 'static,
    fits: impl Fn(Option<&Crew>, Option<&Cut>) -> Result<()> + Send + Sync + 'static,
) -> Result<Pipeline<RecomputedStage<Sequential>>> {
    let replicas = &plan.replicas;
    let schedules = (0..replicas.count()).map(|replica| replicas.schedule(replica).clone());
    let snapshot_every = NonZeroU32::new(config.train.snapshot_every).expect("checked: it is not 0");
    let mut builder = Pipeline::builder()
        .places(places_of_all(config, replicas.ranks())?)
        .replica_schedules(schedules.collect())
        .stages(stages(config, &plan.counts)?)
        .recut_by({
            let (config, plan) = (config.clone(), plan.clone());
            move |cut| {
                let (config, plan) = changed(&config, &plan, cut)?;
                Ok((plan.replicas, stages(&config, &plan.counts)?))
            }
        })
        .fits(move |crew, cut| Ok(fits(crew, cut)?))
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
