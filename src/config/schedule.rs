//! The schedule that a config names, before it is known what passes cost, and the ranks it is for.

use std::path::Path;

use super::{Config, sections};
use crate::error::{Error, Result};
use crate::plan::{AUTO, like_auto};
use crate::plan::{Costs, StageCost};
use crate::schedule::{Links, Schedule};

/// What stands before the path of a schedule of one's own.
pub(super) const FILE: &str = "file:";

impl Config {
    /// The schedule before it is known what passes cost, for its ranks and stages; for `auto`, one like those it tries.
    pub(super) fn unfitted(&self) -> Result<Schedule> {
        let name = match self.pipeline.schedule.strip_prefix(FILE) {
            Some(path) => return self.own_schedule(path),
            None if self.pipeline.schedule != AUTO => &self.pipeline.schedule,
            None => like_auto(self.ranks_and_chunks()?.1),
        };
        let (ranks, chunks) = self.ranks_and_chunks()?;
        Schedule::make(name, ranks, Some(chunks), self.pipeline.micro_batches, &alike()?)
            .map_err(|error| self.refuse("pipeline.schedule", error))
    }

    /// Whether the schedule stands in a file.
    pub(super) fn has_own_schedule(&self) -> bool {
        self.pipeline.schedule.starts_with(FILE)
    }

    /// The ranks, and the stages on each: as set, or as many as the schedule has by itself.
    pub(super) fn ranks_and_chunks(&self) -> Result<(u32, u32)> {
        let sections::Pipeline {
            stages,
            ref schedule,
            chunks,
            ..
        } = self.pipeline;
        let known = match schedule.as_str() {
            AUTO => 1..=u32::MAX,
            name => Schedule::chunks(name).map_err(|error| {
                let problem = error.to_string();
                let known = problem.strip_suffix(')').unwrap_or(&problem);
                self.refuse("pipeline.schedule", format!("{known}; or {AUTO}, or {FILE}PATH)"))
            })?,
        };
        let (&least, &most) = (known.start(), known.end());
        let chunks = chunks.unwrap_or(least);
        self.require(known.contains(&chunks), "pipeline.chunks", || {
            let has = match most {
                u32::MAX => format!("{least} or more"),
                most if most == least => least.to_string(),
                most => format!("{least} to {most}"),
            };
            format!("{chunks}, but schedule {schedule} has {has} on each rank: change this or leave it out")
        })?;
        let each = chunks as usize;
        self.require(stages.is_multiple_of(each), "pipeline.stages", || {
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
    pub(super) fn own_schedule(&self, path: &str) -> Result<Schedule> {
        let refuse = |error: Error| self.refuse("pipeline.schedule", format!("{path}: {error}"));
        let pipeline = &self.pipeline;
        self.require(!path.is_empty(), "pipeline.schedule", || {
            format!("`{FILE}` names no file: write {FILE}PATH, such as {FILE}my.csv")
        })?;
        let text = std::fs::read_to_string(path)
            .map_err(|error| self.refuse("pipeline.schedule", format!("cannot read {path}: {error}")))?;
        let name = Path::new(path).file_stem().unwrap_or_default().to_string_lossy();
        let schedule = Schedule::from_csv(&name, &text, None, Links::Buffered)
            .map_err(refuse)?
            .schedule;
        let placement = schedule.placement();
        self.require(placement.directions() == 1, "pipeline.schedule", || {
            format!(
                "{path} goes in {} directions (placement {placement}); the engine trains schedules of one direction: \
                 dualpipe-v is the schedule of this kind for that",
                placement.directions()
            )
        })?;
        let fits = |has: u32, key: &str, wanted: usize| {
            self.require(has as usize == wanted, key, || {
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
            self.require(each.iter().all(|&each| each == chunks), "pipeline.chunks", || {
                format!(
                    "{chunks}, but the ranks of the schedule in {path} have {each:?} stages: leave this out"
                )
            })?;
        }
        Ok(schedule)
    }
}

/// Costs where none are measured: every rank's share and every pass alike, nothing freed before the backward-weight.
pub(super) fn alike() -> Result<Costs> {
    let share = StageCost {
        pending: 1.0,
        ..StageCost::default()
    };
    Costs::share(share, 0.0)
}
