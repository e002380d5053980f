//! The schedule that a config names, before costs are known, and its numbers of ranks and stages.

use std::path::Path;

use super::trained::trained_share;
use crate::config::{self, Config};
use crate::error::Result;
use crate::error::{ScheduleFileProblem, ValueProblem};
use pipewright::groups::Groups;
use pipewright::nearest::nearest;
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
        .map_err(|error| config.refuse("pipeline.schedule", ValueProblem::Schedule(Box::new(error))))
}

/// The gradient groups of a config's batch.
pub(super) fn groups(config: &Config) -> Groups {
    Groups::new(config.pipeline.micro_batches, config.gradient_groups())
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
    let config::Pipeline {
        stages,
        ref schedule,
        chunks,
        ..
    } = config.pipeline;
    let (least, most) = match schedule.as_str() {
        AUTO => (1, u32::MAX),
        name if Schedule::names().any(|known| known == name) => Schedule::chunks(name)?.into_inner(),
        name => return Err(config.refuse("pipeline.schedule", unknown(name))),
    };
    let chunks = chunks.unwrap_or(least);
    config.require((least..=most).contains(&chunks), "pipeline.chunks", || {
        ValueProblem::Chunks {
            chunks,
            schedule: schedule.clone(),
            least,
            most,
        }
    })?;
    let each = chunks as usize;
    config.require(stages.is_multiple_of(each), "pipeline.stages", || {
        ValueProblem::UnevenStages {
            stages,
            schedule: schedule.clone(),
            each,
        }
    })?;
    Ok((stages as u32 / chunks, chunks))
}

fn unknown(name: &str) -> ValueProblem {
    ValueProblem::NoSchedule {
        name: name.to_owned(),
        nearest: nearest(name, Schedule::names()),
        known: Schedule::names().collect(),
    }
}

/// The schedule in this file.
pub(super) fn in_file(config: &Config, path: &str) -> Result<Schedule> {
    let (key, path) = ("pipeline.schedule", path.to_owned());
    config.require(!path.is_empty(), key, || ScheduleFileProblem::NoPath.into())?;
    let text = std::fs::read_to_string(&path);
    let text = text.map_err(|source| {
        let path = path.clone();
        config.refuse(key, ScheduleFileProblem::Unreadable { path, source })
    })?;
    let name = Path::new(&path).file_stem().unwrap_or_default().to_string_lossy();
    let schedule = Schedule::from_csv(&name, &text, None, LinkKind::Buffered);
    let schedule = schedule.map_err(|error| {
        let (path, source) = (path.clone(), Box::new(error));
        config.refuse(key, ScheduleFileProblem::Wrong { path, source })
    })?;
    check_file(config, &path, &schedule.schedule)?;
    Ok(schedule.schedule)
}

/// Refuses a schedule in a file that does not fit the config's pipeline. It is for the micro-batches of one
/// replica, and all replicas must have as many.
fn check_file(config: &Config, path: &str, schedule: &Schedule) -> Result<()> {
    let (pipeline, placement) = (&config.pipeline, schedule.placement());
    let (path, directions) = (path.to_owned(), placement.directions());
    if directions != 1 {
        let placement = placement.to_string();
        let problem = ScheduleFileProblem::Directions {
            path,
            directions,
            placement,
        };
        return Err(config.refuse("pipeline.schedule", problem));
    }
    let (stages, has) = (pipeline.stages, schedule.stages());
    if has as usize != stages {
        let problem = ScheduleFileProblem::Size {
            path,
            has,
            wanted: stages,
        };
        return Err(config.refuse("pipeline.stages", problem));
    }
    let (replicas, has) = (pipeline.replicas, schedule.micro_batches());
    let shares = (0..replicas).map(|replica| groups(config).share(replica, replicas).len());
    if let Some((replica, wanted)) = (0..).zip(shares).find(|(_, share)| has as usize != *share) {
        let problem = match replicas {
            1 => ScheduleFileProblem::Size { path, has, wanted },
            _ => ScheduleFileProblem::Share {
                path,
                has,
                replica,
                wanted,
            },
        };
        return Err(config.refuse("pipeline.micro_batches", problem));
    }
    let each = placement.chunks();
    match pipeline.chunks {
        Some(wanted) if each.iter().any(|&each| each != wanted) => Err(config.refuse(
            "pipeline.chunks",
            ScheduleFileProblem::Chunks { path, each, wanted },
        )),
        _ => Ok(()),
    }
}

/// Costs for when none are measured: all ranks and all passes have the same cost, and nothing is freed before
/// the backward-weight. Of a model with frozen parameters, the backward-weight costs only the share of the
/// weights that is trained.
pub(super) fn equal_costs(config: &Config) -> Result<Costs> {
    let share = StageCost {
        backward_weight: trained_share(config)?,
        pending: 1.0,
        ..StageCost::default()
    };
    Ok(Costs::share(share, 0.0)?)
}
