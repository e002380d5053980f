//! The schedule that a config names, and the ranks it is for.

use std::path::Path;

use super::{Config, sections};
use crate::error::{Error, Result};
use crate::plan::ModelCosts;
use crate::schedule::{Costs, Links, Schedule};

/// What stands before the path of a schedule of one's own.
const FILE: &str = "file:";

impl Config {
    /// The schedule: the one of this name on `pipeline.stages` / `pipeline.chunks` ranks, or the one in a file.
    ///
    /// # Errors
    /// When there is none of this name, when it does not go with the stages, chunks and micro-batches, when the file
    /// cannot be read or holds another number of them, or as [`Config::costs`].
    pub fn schedule(&self) -> Result<Schedule> {
        self.schedule_by(self.costs()?.as_ref())
    }

    /// As [`Config::schedule`], fitted to these costs if it is one that fits its order to costs.
    ///
    /// # Errors
    /// As for [`Config::schedule`].
    pub fn schedule_by(&self, costs: Option<&ModelCosts>) -> Result<Schedule> {
        self.schedule_for(|| match costs {
            Some(costs) => costs.stages(&self.counts_by(Some(costs))?),
            None => Ok(Costs::default()),
        })
    }

    /// The schedule; what passes cost is asked for by those that have a name.
    pub(super) fn schedule_for(&self, costs: impl FnOnce() -> Result<Costs>) -> Result<Schedule> {
        match self.pipeline.schedule.strip_prefix(FILE) {
            Some(path) => self.own_schedule(path),
            None => self.named_schedule(&costs()?),
        }
    }

    /// Whether the schedule stands in a file.
    pub(super) fn has_own_schedule(&self) -> bool {
        self.pipeline.schedule.starts_with(FILE)
    }

    fn named_schedule(&self, costs: &Costs) -> Result<Schedule> {
        let sections::Pipeline {
            stages,
            ref schedule,
            micro_batches,
            ..
        } = self.pipeline;
        let chunks = self.chunks()?;
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
        let ranks = stages as u32 / chunks;
        Schedule::make(schedule, ranks, Some(chunks), micro_batches, costs)
            .map_err(|error| self.refuse("pipeline.schedule", error))
    }

    /// The stages on each rank: as set, or as many as the schedule has by itself.
    fn chunks(&self) -> Result<u32> {
        let schedule = &self.pipeline.schedule;
        let known = Schedule::chunks(schedule).map_err(|error| self.refuse("pipeline.schedule", error))?;
        let (&least, &most) = (known.start(), known.end());
        let chunks = self.pipeline.chunks.unwrap_or(least);
        self.require(known.contains(&chunks), "pipeline.chunks", || {
            let has = match most {
                u32::MAX => format!("{least} or more"),
                most if most == least => least.to_string(),
                most => format!("{least} to {most}"),
            };
            format!("{chunks}, but schedule {schedule} has {has} on each rank: change this or leave it out")
        })?;
        Ok(chunks)
    }

    fn own_schedule(&self, path: &str) -> Result<Schedule> {
        let refuse = |error: Error| self.refuse("pipeline.schedule", format!("{path}: {error}"));
        let pipeline = &self.pipeline;
        let text = std::fs::read_to_string(path)
            .map_err(|error| self.refuse("pipeline.schedule", format!("cannot read {path}: {error}")))?;
        let name = Path::new(path).file_stem().unwrap_or_default().to_string_lossy();
        let schedule = Schedule::from_csv(&name, &text, None, Links::Buffered)
            .map_err(refuse)?
            .schedule;
        let fits = |has: u32, key: &str, wanted: usize, what: &str| {
            self.require(has as usize == wanted, key, || {
                format!("{wanted}, but the schedule in {path} has {has} {what}: set this to {has}")
            })
        };
        fits(schedule.stages(), "pipeline.stages", pipeline.stages, "stages")?;
        fits(
            schedule.micro_batches(),
            "pipeline.micro_batches",
            pipeline.micro_batches as usize,
            "micro-batches",
        )?;
        if let Some(chunks) = pipeline.chunks {
            let each = schedule.placement().chunks();
            self.require(each.iter().all(|&each| each == chunks), "pipeline.chunks", || {
                format!(
                    "{chunks}, but the ranks of the schedule in {path} have {each:?} stages: leave this out"
                )
            })?;
        }
        Ok(schedule)
    }
}
