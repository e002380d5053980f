//! The schedule that a config names, before it is known what passes cost, and the ranks it is for.

use std::path::Path;

use crate::config::{self, Config};
use crate::error::{Error, Result};
use crate::plan::{AUTO, like_auto};
use crate::plan::{Costs, StageCost};
use crate::schedule::{Links, Schedule};

/// What stands before the path of a schedule of one's own.
pub(super) const FILE: &str = "file:";

/// The schedule before it is known what passes cost, for its ranks and stages; for `auto`, one like those it tries.
pub(super) fn unfitted(config: &Config) -> Result<Schedule> {
    let name = match config.pipeline.schedule.strip_prefix(FILE) {
        Some(path) => return in_file(config, path),
        None if config.pipeline.schedule != AUTO => &config.pipeline.schedule,
        None => like_auto(ranks_and_chunks(config)?.1),
    };
    let (ranks, chunks) = ranks_and_chunks(config)?;
    Schedule::make(
        name,
        ranks,
        Some(chunks),
        config.pipeline.micro_batches,
        &alike()?,
    )
    .map_err(|error| config.refuse("pipeline.schedule", error))
}

/// Whether the schedule stands in a file.
pub(super) fn is_in_file(config: &Config) -> bool {
    config.pipeline.schedule.starts_with(FILE)
}

/// The ranks, and the stages on each: as set, or as many as the schedule has by itself.
pub(super) fn ranks_and_chunks(config: &Config) -> Result<(u32, u32)> {
    let config::Pipeline {
        stages,
        ref schedule,
        chunks,
        ..
    } = config.pipeline;
    let known = match schedule.as_str() {
        AUTO => 1..=u32::MAX,
        name => Schedule::chunks(name).map_err(|error| {
            let problem = error.to_string();
            let known = problem.strip_suffix(')').unwrap_or(&problem);
            config.refuse("pipeline.schedule", format!("{known}; or {AUTO}, or {FILE}PATH)"))
        })?,
    };
    let (&least, &most) = (known.start(), known.end());
    let chunks = chunks.unwrap_or(least);
    config.require(known.contains(&chunks), "pipeline.chunks", || {
        let has = match most {
            u32::MAX => format!("{least} or more"),
            most if most == least => least.to_string(),
            most => format!("{least} to {most}"),
        };
        format!("{chunks}, but schedule {schedule} has {has} on each rank: change this or leave it out")
    })?;
    let each = chunks as usize;
    config.require(stages.is_multiple_of(each), "pipeline.stages", || {
        let fewer = match stages / each * each {
            0 => String::new(),
            fewer => format!("{fewer} or "),
        };
        format!(
            "{stages}, but schedule {schedule} wants {each} on each rank: use {fewer}{}",
            stages.next_multiple_of(each)
        )
    })?;
    Ok((stages as u32 / chunks, chunks))
}

/// The schedule in this file.
pub(super) fn in_file(config: &Config, path: &str) -> Result<Schedule> {
    let refuse = |error: Error| config.refuse("pipeline.schedule", format!("{path}: {error}"));
    let pipeline = &config.pipeline;
    config.require(!path.is_empty(), "pipeline.schedule", || {
        format!("`{FILE}` names no file: write {FILE}PATH, such as {FILE}my.csv")
    })?;
    let text = std::fs::read_to_string(path)
        .map_err(|error| config.refuse("pipeline.schedule", format!("cannot read {path}: {error}")))?;
    let name = Path::new(path).file_stem().unwrap_or_default().to_string_lossy();
    let schedule = Schedule::from_csv(&name, &text, None, Links::Buffered)
        .map_err(refuse)?
        .schedule;
    let placement = schedule.placement();
    config.require(placement.directions() == 1, "pipeline.schedule", || {
        format!(
            "{path} goes in {} directions (placement {placement}); the engine trains schedules of one direction: \
             dualpipe-v is the schedule of this kind for that",
            placement.directions()
        )
    })?;
    let fits = |has: u32, key: &str, wanted: usize| {
        config.require(has as usize == wanted, key, || {
            format!("{wanted}, but the schedule in {path} has {has}: set this to {has}")
        })
    };
    fits(schedule.stages(), "pipeline.stages", pipeline.stages)?;
    fits(
        schedule.micro_batches(),
        "pipeline.micro_batches",
        pipeline.micro_batches as usize,
    )?;
    if let Some(chunks) = pipeline.chunks {
        let each = placement.chunks();
        config.require(each.iter().all(|&each| each == chunks), "pipeline.chunks", || {
            format!("{chunks}, but the ranks of the schedule in {path} have {each:?} stages: leave this out")
        })?;
    }
    Ok(schedule)
}

/// Costs where none are measured: every rank's share and every pass alike, nothing freed before the backward-weight.
pub(super) fn alike() -> Result<Costs> {
    let share = StageCost {
        pending: 1.0,
        ..StageCost::default()
    };
    Costs::share(share, 0.0)
}
