//! The cut and the schedule of a config.

mod divided;
mod replan;
mod shapes;

pub use divided::{check_divided, check_divided_rows};
pub use replan::{changed, counts_after, replan};
pub use shapes::shapes_in_words;

use self::divided::check_shards;
use crate::compose::costs::{self, InFile};
use crate::compose::memory::estimated_costs;
use crate::compose::mixed::Documents;
use crate::compose::model::{estimated_counts, listed_counts};
use crate::compose::offload::offload;
use crate::compose::on_gpu::modelled_with;
use crate::compose::planned::PipelinePlan;
use crate::compose::schedule::{
    FILE, equal_costs, groups, in_file, named, ranks_and_chunks, ranks_of, unequal_shares, unfitted,
};
use crate::config::{Config, Memory, Partition};
use crate::error::ValueProblem;
use crate::error::{Error, Result};
use pipewright::plan::{AUTO, Fit, Fitting, Goal, Gpu, Replicas, Setting, Wanted, auto};
use pipewright::schedule::{LinkKind, Schedule};

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
    // More stages than layers are refused before a schedule is made for them.
    estimated_counts(config)?;
    check_shards(config)?;
    let plan = match costs::in_file(config)? {
        Some(file) => by_costs(config, file),
        None => by_estimates(config),
    }?;
    Ok(warned(config, plan))
}

/// The plan with a warning if replicas have unequal shares.
fn warned(config: &Config, mut plan: PipelinePlan) -> PipelinePlan {
    plan.warnings.extend(unequal_shares(config));
    plan
}

/// The same for GPUs of a kind that need not be here: their figures take the place of measured costs.
///
/// # Errors
/// As for [`plan`]. Also when it is not known what such GPUs would run for this config.
pub fn plan_for(config: &Config, gpu: &Gpu) -> Result<PipelinePlan> {
    let Documents { mixed, warning } = Documents::of(config);
    let modelled = modelled_with(config, gpu, mixed.as_ref())?;
    let costs = costs::costs_by_any(config, &modelled)?;
    let file = InFile { costs, cluster: modelled.cluster(1), tokens: modelled.tokens, warning };
    Ok(warned(config, by_costs(config, file)?))
}

fn by_costs(config: &Config, file: InFile) -> Result<PipelinePlan> {
    let InFile { costs: model, cluster, tokens, warning } = file;
    let counts = listed_counts(config)?;
    let offload = offload(config, ranks_of(config)?)?;
    let fitting = Fitting {
        model: &model,
        counts: counts.as_deref(),
        memory: config.pipeline.memory.map(Memory::bytes),
        offload: offload.as_ref(),
        barrier: config.pipeline.barrier,
    };
    let fit = match config.pipeline.schedule.strip_prefix(FILE) {
        Some(path) => fitting.schedule(&in_file(config, path)?, groups(config), config.pipeline.replicas),
        None => fitting.setting(&setting(config)?),
    };
    match fit.map_err(|error| config.refuse("pipeline.schedule", ValueProblem::caused(error)))? {
        Fit::Within(candidate) => Ok(PipelinePlan {
            prediction: Some(candidate.prediction),
            counts: candidate.counts,
            costs: Some(model.clone().under(&unfitted(config)?.in_turn())),
            costs_by_any: Some(model),
            replicas: candidate.replicas,
            why: candidate.why,
            cluster: Some(cluster),
            tokens,
            warnings: warning.into_iter().collect(),
        }),
        Fit::Above(least) => Err(too_little(config, least, model.layers().len())),
    }
}

fn by_estimates(config: &Config) -> Result<PipelinePlan> {
    config.require(config.pipeline.memory.is_none(), "pipeline.memory", || {
        let why = match config.pipeline.devices.are_mixed() {
            true => ", and none can be measured for ranks on both the CPU and GPUs: leave it out",
            false => ": run `pipewright profile` and set pipeline.costs",
        };
        format!("a limit in bytes needs measured costs{why}")
    })?;
    let all = |make: &dyn Fn(u32) -> Result<Schedule>| {
        Replicas::new(groups(config), config.pipeline.replicas, make)
    };
    let pipeline = &config.pipeline;
    let (replicas, why) = match (pipeline.schedule.strip_prefix(FILE), pipeline.schedule.as_str()) {
        (Some(path), _) => {
            let schedule = in_file(config, path)?;
            (all(&|_| Ok(schedule.clone()))?, None)
        }
        (None, AUTO) => {
            let (schedule, why) = chosen(config)?;
            (all(&|share| Ok(schedule.part(0..share)))?, why)
        }
        (None, name) => (all(&|share| named(config, name, share))?, None),
    };
    let mut plan = PipelinePlan::of(estimated_counts(config)?, replicas);
    if let Some(offload) = offload(config, plan.replicas.ranks())? {
        let costs = estimated_costs(config, &plan, 1.0)?;
        plan.replicas = plan.replicas.each(|schedule| offload.of(schedule, &costs))?;
    }
    Ok(PipelinePlan { why, ..plan })
}

/// The schedule that `auto` chooses for the largest share when costs are not known.
fn chosen(config: &Config) -> Result<(Schedule, Option<String>)> {
    let (ranks, chunks) = ranks_and_chunks(config)?;
    let micro_batches = groups(config).largest_share(config.pipeline.replicas);
    let chosen = auto(&Wanted {
        ranks,
        chunks: Some(chunks),
        micro_batches,
        costs: &equal_costs(config)?,
        memory: None,
        links: LinkKind::Buffered,
        goal: if config.pipeline.barrier { Goal::Makespan } else { Goal::Span },
    })
    .map_err(|error| config.refuse("pipeline.schedule", ValueProblem::caused(error)))?;
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
        replicas: config.pipeline.replicas,
        gradient_groups: config.gradient_groups(),
    })
}

fn too_little(config: &Config, least: f64, layers: usize) -> Error {
    let schedule = &config.pipeline.schedule;
    let limit = config.pipeline.memory;
    let limit = limit.map_or(String::new(), |limit| limit.to_string());
    let least = Memory::enough(least);
    let stages = config.pipeline.stages;
    let problem = match config.pipeline.partition {
        Partition::Named(_) => format!(
            "{limit} is less than any cut of {layers} layers into {stages} stages holds with {schedule}; the \
             least found is {least}"
        ),
        Partition::Lists(_) => {
            format!("{limit} is less than the stages of pipeline.partition hold with {schedule}, {least}")
        }
    };
    config.refuse("pipeline.memory", problem)
}
