//! The cut and the schedule of a config.

use super::costs;
use super::model::{estimated_counts, listed_counts};
use super::schedule::{FILE, equal_costs, in_file, ranks_and_chunks, unfitted};
use crate::checksum::Checksum;
use crate::config::{Config, Memory, Partition};
use crate::error::{Error, Result, ValueProblem};
use crate::id::Rank;
use crate::plan::{AUTO, Fit, Fitting, Goal, ModelCosts, Prediction, Setting, Wanted, auto};
use crate::schedule::{LinkKind, Schedule};

/// How a config's model is cut, and in which order its passes run.
#[derive(Clone, Debug)]
pub struct PipelinePlan {
    /// How many layers each stage has.
    pub counts: Vec<usize>,
    /// The schedule exactly as a pipeline runs it: [`Schedule::in_turn`] has been applied.
    pub schedule: Schedule,
    /// What the layers cost, if a file says so.
    pub costs: Option<ModelCosts>,
    /// The prediction of a step in seconds and bytes, if the costs are known.
    pub prediction: Option<Prediction>,
    /// What `auto` chose, and why. `None` for other schedules.
    pub why: Option<String>,
    /// A warning that the costs were measured under other conditions.
    pub warning: Option<String>,
}

/// The cut and the schedule of a config, within `pipeline.memory`: what `train` runs, and what `plan` shows.
///
/// With `pipeline.costs`, the costs in that file determine the cut and the order. Without it, the cut is
/// balanced by estimates. The order is then made for passes that all take the same time, and as if all that a
/// forward keeps were needed until the backward-weight.
///
/// # Errors
/// When there is no such schedule, or it does not fit the stages, chunks and micro-batches. When a file of
/// costs or of a schedule cannot be read, or is for another model. When there are more stages than layers.
/// When the partition misses, repeats or misnames a layer. When there is a memory limit but no costs, or when
/// no cut fits the limit.
pub fn plan(config: &Config) -> Result<PipelinePlan> {
    match costs::in_file(config)? {
        Some((model, warning)) => by_costs(config, model, warning),
        None => by_estimates(config),
    }
}

impl PipelinePlan {
    /// A cut and a schedule, of which nothing else is known.
    pub fn of(counts: Vec<usize>, schedule: &Schedule) -> Self {
        Self {
            counts,
            schedule: schedule.clone().in_turn(),
            costs: None,
            prediction: None,
            why: None,
            warning: None,
        }
    }

    /// What must be equal in all processes of a run, besides the config's text: the files that it names may
    /// differ between machines. One line each for the costs, the cut, and the order of each rank. Costs and
    /// orders are checksums.
    pub fn in_common(&self) -> String {
        let costs = self.costs.as_ref().map_or("none".to_owned(), |costs| {
            // Debug prints the shortest text that reads back as the same number. So equal texts mean equal
            // numbers.
            Checksum::of(format!("{costs:?}").as_bytes()).to_string()
        });
        let mut text = format!(
            "[plan]\ncosts = {costs}\nlayers of each stage = {:?}\nplacement = {}\n",
            self.counts,
            self.schedule.placement()
        );
        for rank in (0..self.schedule.ranks()).map(Rank) {
            text += &format!("order of rank {rank} = {}\n", self.schedule.checksum(rank));
        }
        text
    }
}

fn by_costs(config: &Config, model: ModelCosts, warning: Option<String>) -> Result<PipelinePlan> {
    let counts = listed_counts(config)?;
    let fitting = Fitting {
        model: &model,
        counts: counts.as_deref(),
        memory: config.pipeline.memory.map(Memory::bytes),
    };
    let fit = match config.pipeline.schedule.strip_prefix(FILE) {
        Some(path) => fitting.schedule(&in_file(config, path)?),
        None => fitting.setting(&setting(config)?),
    };
    match fit.map_err(|error| config.refuse("pipeline.schedule", ValueProblem::Schedule(Box::new(error))))? {
        Fit::Within(candidate) => Ok(PipelinePlan {
            counts: candidate.counts,
            schedule: candidate.schedule.in_turn(),
            prediction: Some(candidate.prediction),
            why: candidate.why,
            costs: Some(model),
            warning,
        }),
        Fit::Above(least) => Err(too_little(config, least, model.layers().len())),
    }
}

fn by_estimates(config: &Config) -> Result<PipelinePlan> {
    config.require(config.pipeline.memory.is_none(), "pipeline.memory", || {
        let mixed = config.pipeline.devices.are_mixed();
        ValueProblem::NoCosts { mixed }
    })?;
    let (schedule, why) = match config.pipeline.schedule.as_str() {
        AUTO => chosen(config)?,
        _ => (unfitted(config)?, None),
    };
    Ok(PipelinePlan {
        why,
        ..PipelinePlan::of(estimated_counts(config)?, &schedule)
    })
}

/// The schedule that `auto` chooses when costs are not known.
fn chosen(config: &Config) -> Result<(Schedule, Option<String>)> {
    let Setting {
        ranks,
        chunks,
        micro_batches,
        ..
    } = setting(config)?;
    let chosen = auto(&Wanted {
        ranks,
        chunks: Some(chunks),
        micro_batches,
        costs: &equal_costs()?,
        memory: None,
        links: LinkKind::Buffered,
        goal: Goal::Makespan,
    })
    .map_err(|error| config.refuse("pipeline.schedule", ValueProblem::Schedule(Box::new(error))))?;
    let why = chosen.to_string();
    Ok((chosen.schedule, Some(why)))
}

fn setting(config: &Config) -> Result<Setting> {
    let (ranks, chunks) = ranks_and_chunks(config)?;
    Ok(Setting {
        schedule: config.pipeline.schedule.clone(),
        ranks,
        chunks,
        micro_batches: config.pipeline.micro_batches,
    })
}

fn too_little(config: &Config, least: f64, layers: usize) -> Error {
    let schedule = config.pipeline.schedule.clone();
    let limit = config.pipeline.memory;
    let limit = limit.map_or(String::new(), |limit| limit.to_string());
    let least = Memory::enough(least);
    let problem = match config.pipeline.partition {
        Partition::Named(_) => ValueProblem::NoCut {
            limit,
            layers,
            stages: config.pipeline.stages,
            schedule,
            least,
        },
        Partition::Lists(_) => ValueProblem::ListedCut {
            limit,
            schedule,
            least,
        },
    };
    config.refuse("pipeline.memory", problem)
}
