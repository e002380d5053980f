//! The schedule that a config names, before costs are known, and its numbers of ranks and stages.

use std::path::Path;

use super::trained::trained_share;
use crate::config::{self, Config};
use crate::error::{Result, ValueProblem};
use pipewright::groups::GradientGroups;
use pipewright::plan::{AUTO, like_auto};
use pipewright::plan::{Costs, StageCost};
use pipewright::schedule::{LinkKind, Schedule};

/// The prefix of a schedule's file name.
pub(super) const FILE: &str = "file:";

/// The schedule of a replica with most micro-batches, before costs are known. For `auto` it is similar to the
/// ones that `auto` tries.
pub(super) fn unfitted(config: &Config) -> Result<Schedule> {
    let name = match config.pipeline.schedule.strip_prefix(FILE) {
        Some(path) => return in_file(config, path),
        None if config.pipeline.schedule != AUTO => &config.pipeline.schedule,
        None => like_auto(ranks_and_chunks(config)?.1),
    };
    named(config, name, largest_share(config))
}

/// A named schedule for the config's ranks and this number of micro-batches, before costs are known.
pub(super) fn named(config: &Config, name: &str, micro_batches: u32) -> Result<Schedule> {
    let (ranks, chunks) = ranks_and_chunks(config)?;
    Schedule::make(name, ranks, Some(chunks), micro_batches, &equal_costs(config)?)
        .map_err(|error| config.refuse("pipeline.schedule", ValueProblem::caused(error)))
}

/// The gradient groups of a config's batch.
pub(super) fn groups(config: &Config) -> GradientGroups {
    GradientGroups::new(config.pipeline.micro_batches, config.gradient_groups())
}

/// What is told of replicas if some wait for others: one has no micro-batch, or at least two fewer than
/// another.
pub(super) fn unequal_shares(config: &Config) -> Option<String> {
    let (groups, replicas) = (groups(config), config.pipeline.replicas);
    let shares = || (0..replicas).map(|replica| groups.share(replica, replicas).len());
    let (least, most, micro_batches) = (shares().min()?, shares().max()?, groups.micro_batches());
    if micro_batches < replicas {
        return Some(format!(
            "pipeline.replicas: {replicas} replicas share {micro_batches} micro-batches, so {} of them have \
             nothing to do: set pipeline.micro_batches to {replicas} or more",
            replicas - micro_batches
        ));
    }
    (most > least + 1).then(|| {
        format!(
            "pipeline.gradient_groups: with {} gradient groups, one of {replicas} replicas has {most} of \
             {micro_batches} micro-batches and another has {least}, and waits: set it to {replicas} for \
             equal shares",
            groups.count()
        )
    })
}

/// The most micro-batches that a replica has.
fn largest_share(config: &Config) -> u32 {
    groups(config).largest_share(config.pipeline.replicas)
}

/// Whether the schedule is in a file.
pub(super) fn is_in_file(config: &Config) -> bool {
    config.pipeline.schedule.starts_with(FILE)
}

/// The number of ranks, and of stages on each: as the config sets them, or as the schedule needs.
pub(super) fn ranks_and_chunks(config: &Config) -> Result<(u32, u32)> {
    let config::Pipeline { stages, ref schedule, chunks, .. } = config.pipeline;
    let (least, most) = match schedule.as_str() {
        AUTO => (1, u32::MAX),
        name => {
            let chunks = Schedule::chunks(name);
            chunks.map_err(|error| config.refuse("pipeline.schedule", unknown(&error)))?.into_inner()
        }
    };
    let chunks = chunks.unwrap_or(least);
    config.require((least..=most).contains(&chunks), "pipeline.chunks", || {
        let each = match most {
            u32::MAX => format!("{least} or more"),
            most if most == least => least.to_string(),
            most => format!("{least} to {most}"),
        };
        format!("{chunks}, but schedule {schedule} has {each} on each rank: change this or leave it out")
    })?;
    let each = chunks as usize;
    config.require(stages.is_multiple_of(each), "pipeline.stages", || {
        let above = stages.next_multiple_of(each);
        let choices = match stages / each * each {
            0 => above.to_string(),
            below => format!("{below} or {above}"),
        };
        format!("{stages}, but schedule {schedule} wants {each} on each rank: use {choices}")
    })?;
    Ok((stages as u32 / chunks, chunks))
}

/// How many ranks a pipeline has.
pub(super) fn ranks_of(config: &Config) -> Result<u32> {
    Ok(match config.pipeline.schedule.strip_prefix(FILE) {
        Some(path) => in_file(config, path)?.ranks(),
        None => ranks_and_chunks(config)?.0,
    })
}

/// What an unknown schedule's error says, and what a config may name besides.
fn unknown(error: &impl ToString) -> String {
    let text = error.to_string();
    format!("{}; or auto, or file:PATH)", text.trim_end_matches(')'))
}

/// The schedule in this file.
pub(super) fn in_file(config: &Config, path: &str) -> Result<Schedule> {
    let key = "pipeline.schedule";
    config.require(
        !path.is_empty(),
        key,
        || "`file:` names no file: write file:PATH, such as file:my.csv",
    )?;
    let text = std::fs::read_to_string(path).map_err(|source| {
        let text = format!("cannot read {path}: {source}");
        config.refuse(key, ValueProblem::because(text, source))
    })?;
    let name = Path::new(path).file_stem().unwrap_or_default().to_string_lossy();
    let schedule = Schedule::from_csv(&name, &text, None, LinkKind::Buffered);
    let schedule = schedule.map_err(|source| {
        let text = format!("{path}: {source}");
        config.refuse(key, ValueProblem::because(text, source))
    })?;
    check_file(config, path, &schedule.schedule)?;
    Ok(schedule.schedule)
}

/// Refuses a schedule in a file that does not fit the config's pipeline. It is for the micro-batches of one
/// replica, and all replicas must have as many.
fn check_file(config: &Config, path: &str, schedule: &Schedule) -> Result<()> {
    let (pipeline, placement) = (&config.pipeline, schedule.placement());
    let directions = placement.directions();
    config.require(directions == 1, "pipeline.schedule", || {
        format!(
            "{path} goes in {directions} directions (placement {placement}); the engine trains schedules of \
             one direction: use dualpipe-v, which is similar"
        )
    })?;
    let size = |has: u32, wanted: usize| {
        format!("{wanted}, but the schedule in {path} has {has}: set this to {has}")
    };
    let (stages, has) = (pipeline.stages, schedule.stages());
    config.require(has as usize == stages, "pipeline.stages", || size(has, stages))?;
    let (replicas, has) = (pipeline.replicas, schedule.micro_batches());
    let shares = (0..replicas).map(|replica| groups(config).share(replica, replicas).len());
    if let Some((replica, wanted)) = (0..).zip(shares).find(|(_, share)| has as usize != *share) {
        let problem = match replicas {
            1 => size(has, wanted),
            _ => format!(
                "the schedule in {path} is for the {has} micro-batches of a replica, but replica {replica} \
                 has {wanted} of the batch: choose micro_batches and gradient_groups so that each replica \
                 has {has}"
            ),
        };
        return Err(config.refuse("pipeline.micro_batches", problem));
    }
    let each = placement.chunks();
    let wanted = pipeline.chunks.unwrap_or(0);
    let fits = wanted == 0 || each.iter().all(|&each| each == wanted);
    config.require(fits, "pipeline.chunks", || {
        format!("{wanted}, but the ranks of the schedule in {path} have {each:?} stages: leave this out")
    })
}

/// Costs for when none are measured: all ranks and all passes have the same cost, and nothing is freed before
/// the backward-weight. Of a model with frozen parameters, the backward-weight costs only the share of the
/// weights that is trained.
pub(super) fn equal_costs(config: &Config) -> Result<Costs> {
    let share = StageCost { backward_weight: trained_share(config)?, pending: 1.0, ..StageCost::default() };
    Ok(Costs::share(share, 0.0)?)
}
