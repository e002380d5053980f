//! The cut and the schedule that a config asks for.

use super::schedule::{FILE, alike};
use super::{Config, Memory, Partition};
use crate::error::{Error, Result};
use crate::plan::Goal;
use crate::plan::{AUTO, Fit, Fitting, ModelCosts, Prediction, Setting, Wanted, auto};
use crate::schedule::{Links, Schedule};

/// How a config's model is cut and in which order it runs.
#[derive(Clone, Debug)]
pub struct Choice {
    /// How many layers each stage gets.
    pub counts: Vec<usize>,
    /// The schedule, fitted to the costs if it is one that is.
    pub schedule: Schedule,
    /// How a step goes, where the costs are known: seconds and bytes.
    pub prediction: Option<Prediction>,
    /// What was chosen and why, where the schedule is `auto`.
    pub why: Option<String>,
}

impl Config {
    /// The cut and the schedule for these costs, within `pipeline.memory`. Without costs a balanced partition goes by estimates,
    /// and for the schedule all passes are taken to cost the same, and nothing of what a forward keeps to be free before the
    /// backward-weight.
    ///
    /// # Errors
    /// When there is no such schedule, when it does not go with the stages, chunks and micro-batches, when its file cannot be
    /// read or holds another number of them, when there are more stages than layers, when the partition misses, repeats or
    /// misnames a layer, when there is a limit to the memory and no costs, or when nothing that was found keeps it.
    pub fn choose(&self, costs: Option<&ModelCosts>) -> Result<Choice> {
        let memory = self.pipeline.memory;
        let Some(model) = costs else {
            self.require(memory.is_none(), "pipeline.memory", || {
                let how = if self.pipeline.devices.are_mixed() {
                    ", and there are none of ranks on the CPU and on GPUs: leave it out"
                } else {
                    ": run `pipewright profile` and set pipeline.costs"
                };
                format!("a limit in bytes needs measured costs{how}")
            })?;
            return self.choose_by_estimates();
        };
        let counts = self.listed_counts()?;
        let fitting = Fitting {
            model,
            counts: counts.as_deref(),
            memory: memory.map(Memory::bytes),
        };
        let fit = match self.pipeline.schedule.strip_prefix(FILE) {
            Some(path) => fitting.schedule(&self.own_schedule(path)?),
            None => fitting.setting(&self.setting()?),
        };
        match fit.map_err(|error| self.refuse("pipeline.schedule", error))? {
            Fit::Within(candidate) => Ok(Choice {
                counts: candidate.counts,
                schedule: candidate.schedule,
                prediction: Some(candidate.prediction),
                why: candidate.why,
            }),
            Fit::Above(least) => Err(self.too_little(least, model.layers().len())),
        }
    }

    /// The schedule, for the costs in `pipeline.costs`.
    ///
    /// # Errors
    /// As for [`Config::costs`] and [`Config::choose`].
    pub fn schedule(&self) -> Result<Schedule> {
        Ok(self.choose(self.costs()?.as_ref())?.schedule)
    }

    fn choose_by_estimates(&self) -> Result<Choice> {
        let counts = self.estimated_counts()?;
        let (schedule, why) = if self.pipeline.schedule == AUTO {
            let Setting {
                ranks,
                chunks,
                micro_batches,
                ..
            } = self.setting()?;
            let chosen = auto(&Wanted {
                ranks,
                chunks: Some(chunks),
                micro_batches,
                costs: &alike()?,
                memory: None,
                links: Links::Buffered,
                goal: Goal::Makespan,
            })
            .map_err(|error| self.refuse("pipeline.schedule", error))?;
            let why = chosen.to_string();
            (chosen.schedule, Some(why))
        } else {
            (self.unfitted()?, None)
        };
        Ok(Choice {
            counts,
            schedule,
            prediction: None,
            why,
        })
    }

    fn setting(&self) -> Result<Setting> {
        let (ranks, chunks) = self.ranks_and_chunks()?;
        Ok(Setting {
            schedule: self.pipeline.schedule.clone(),
            ranks,
            chunks,
            micro_batches: self.pipeline.micro_batches,
        })
    }

    fn too_little(&self, least: f64, layers: usize) -> Error {
        let (stages, schedule) = (self.pipeline.stages, &self.pipeline.schedule);
        let limit = self
            .pipeline
            .memory
            .map_or(String::new(), |memory| memory.to_string());
        let least = Memory::enough(least);
        self.refuse(
            "pipeline.memory",
            match self.pipeline.partition {
                Partition::Named(_) => format!(
                    "{limit} is less than any cut of {layers} layers into {stages} stages holds with {schedule}; the least found is \
                     {least}"
                ),
                Partition::Lists(_) => format!(
                    "{limit} is less than the stages of pipeline.partition hold with {schedule}, {least}"
                ),
            },
        )
    }
}
