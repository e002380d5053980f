//! The schedule that a config names, and the ranks it is for.

use std::path::Path;

use super::memory::Memory;
use super::{Config, sections};
use crate::error::{Error, Result};
use crate::plan::{AUTO, ModelCosts, Wanted, auto, like_auto};
use crate::schedule::{Costs, Goal, Links, Schedule, StageCost};

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

    /// As [`Config::schedule`], fitted to these costs if it is one that fits its order to costs. Without measured costs all
    /// passes are taken to cost the same, and nothing of what a forward keeps to be free before the backward-weight.
    ///
    /// # Errors
    /// As for [`Config::schedule`].
    pub fn schedule_by(&self, costs: Option<&ModelCosts>) -> Result<Schedule> {
        Ok(self.choose_schedule(costs)?.0)
    }

    /// As [`Config::schedule_by`]; for schedule `auto` also what was chosen and why.
    ///
    /// # Errors
    /// As for [`Config::schedule`].
    pub fn choose_schedule(&self, costs: Option<&ModelCosts>) -> Result<(Schedule, Option<String>)> {
        if let Some(path) = self.pipeline.schedule.strip_prefix(FILE) {
            return Ok((self.own_schedule(path)?, None));
        }
        self.require(
            costs.is_some() || self.pipeline.memory.is_none(),
            "pipeline.memory",
            || {
                "a limit in bytes needs measured costs: run `pipewright profile` and set pipeline.costs"
                    .to_owned()
            },
        )?;
        let costs = match costs {
            Some(costs) => costs.stages(&self.counts_by(Some(costs))?)?,
            None => alike()?,
        };
        if self.pipeline.schedule != AUTO {
            return Ok((self.named_schedule(&self.pipeline.schedule, &costs)?, None));
        }
        let (ranks, chunks) = self.ranks_and_chunks()?;
        let chosen = auto(&Wanted {
            ranks,
            chunks: Some(chunks),
            micro_batches: self.pipeline.micro_batches,
            costs: &costs,
            memory: self.pipeline.memory.map(Memory::bytes),
            links: Links::Buffered,
            goal: Goal::Makespan,
        })
        .map_err(|error| self.refuse("pipeline.schedule", error))?;
        let why = chosen.to_string();
        Ok((chosen.schedule, Some(why)))
    }

    /// The schedule before it is known what passes cost, for its ranks and stages; for `auto`, one like those it tries.
    pub(super) fn unfitted(&self) -> Result<Schedule> {
        let name = match self.pipeline.schedule.strip_prefix(FILE) {
            Some(path) => return self.own_schedule(path),
            None if self.pipeline.schedule != AUTO => &self.pipeline.schedule,
            None => like_auto(self.ranks_and_chunks()?.1),
        };
        self.named_schedule(name, &alike()?)
    }

    /// Whether the schedule stands in a file.
    pub(super) fn has_own_schedule(&self) -> bool {
        self.pipeline.schedule.starts_with(FILE)
    }

    fn named_schedule(&self, name: &str, costs: &Costs) -> Result<Schedule> {
        let (ranks, chunks) = self.ranks_and_chunks()?;
        Schedule::make(name, ranks, Some(chunks), self.pipeline.micro_batches, costs)
            .map_err(|error| self.refuse("pipeline.schedule", error))
    }

    /// The ranks, and the stages on each: as set, or as many as the schedule has by itself.
    fn ranks_and_chunks(&self) -> Result<(u32, u32)> {
        let sections::Pipeline {
            stages,
            ref schedule,
            chunks,
            ..
        } = self.pipeline;
        let known = match schedule.as_str() {
            AUTO => 1..=u32::MAX,
            name => Schedule::chunks(name).map_err(|error| {
                self.refuse("pipeline.schedule", format!("{error}, {AUTO} or {FILE}PATH"))
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

/// Costs where none are measured: every rank's share and every pass alike, nothing freed before the backward-weight.
fn alike() -> Result<Costs> {
    let share = StageCost {
        pending: 1.0,
        ..StageCost::default()
    };
    Costs::share(share, 0.0)
}
