//! How a run changes its cut and its schedule while it goes on.

use std::ops::RangeInclusive;

use pipewright::Cut;
use pipewright::plan::{
    AUTO, LayerCost, LinkCost, ModelCosts, Prediction, Replicas, Scheduling, StageCost, Watch,
};

use pipewright::run::Replan;
use pipewright::schedule::{LinkKind, Schedule};
use pipewright::stages::Recompute;
use pipewright::stages::units::counted;

use crate::compose::costs::{recomputed, recomputed_in_measuring};
use crate::compose::model::{estimated_counts, model, sizes};
use crate::compose::planned::PipelinePlan;
use crate::compose::schedule::{FILE, groups, named, ranks_of};
use crate::config::{Balanced, Config, Memory, Partition, RecomputeBy, ReplanBy};
use crate::error::{Error, Result};

/// What a weight with its optimizer state takes to move, in seconds: 24 bytes at an assumed 1 GB/s. After the
/// first change, the seconds that it took are known.
const MOVES: f64 = 24e-9;

/// The most stages a rank that are tried.
const CHUNKS: u32 = 4;

/// The most stages that are tried, times the layers of the model. It takes about a second to compare such
/// cuts, and the steps wait for it.
const LARGEST_CUT: usize = 2000;

/// The most cells of a schedule that is tried, for the same reason.
const MOST_CELLS: u32 = 5000;

/// How a run changes its cut, from this plan on. Without measured costs, the first steps say how long layers
/// take, and estimates how long they are beside each other.
///
/// # Errors
/// When the sizes of the model are impossible.
pub fn replan(config: &Config, plan: &PipelinePlan) -> Result<Replan> {
    let is_measured = plan.costs_by_any.is_some();
    let costs = plan.costs_by_any.clone().map_or_else(|| estimated(config), Ok)?;
    let numbers: u64 = sizes(config)?.units.iter().map(|unit| unit.weights).sum();
    let memory = config.pipeline.memory.map(Memory::bytes);
    let recompute = recomputed(config).ok();
    let own = Scheduling {
        schedule: config.pipeline.schedule.clone(),
        recomputed: recompute == Some(Recompute::Full),
        replicas: plan.replicas.clone(),
    };
    let (known, cost) = ((costs, is_measured), MOVES * numbers as f64);
    let mut watch = Watch::new(known, own.clone(), plan.counts.clone(), memory, cost);
    if !config.pipeline.barrier {
        watch = watch.without_barrier();
    }
    let replan = match config.pipeline.replan {
        ReplanBy::Off => Replan::when_asked(watch),
        // Estimates know neither how long transfers take nor how long half a backward takes.
        ReplanBy::Auto if !is_measured => Replan::by_itself(watch),
        ReplanBy::Auto => Replan::by_itself(watch.or(others(config, own)?)),
    };
    Ok(match recompute {
        Some(recompute) => replan.recomputing(recompute),
        None => replan,
    })
}

/// What layers cost beside each other, by estimates.
fn estimated(config: &Config) -> Result<ModelCosts> {
    let model = model(config)?;
    let layers = model.names().into_iter().zip(model.costs()).map(|(name, cost)| {
        // Layers of one's own may say nothing of their cost.
        let time = cost.max(1.0);
        let [forward, backward_input, backward_weight] = [time; 3];
        let cost = StageCost { forward, backward_input, backward_weight, ..StageCost::NOTHING };
        LayerCost { name: name.to_owned(), cost, backward: 2.0 * time, shared: 0.0, output: 0.0 }
    });
    Ok(ModelCosts::new(layers.collect(), 0.0, LinkCost::default())?)
}

/// The schedules that a run may change to by itself, its own among them. With a memory limit, it may also
/// change whether all is recomputed.
fn others(config: &Config, own: Scheduling) -> Result<Vec<Scheduling>> {
    let mut all = vec![own.clone()];
    // A head that is deferred has other bits by another schedule there.
    if config.pipeline.devices.has_gpu() {
        return Ok(all);
    }
    let (ranks, micro_batches) = (own.replicas.ranks(), own.replicas.largest_share());
    let layers = model(config)?.names().len();
    let is_tried = |chunks: &u32| {
        let stages = ranks * chunks;
        let is_small = stages as usize * layers <= LARGEST_CUT && stages * micro_batches <= MOST_CELLS;
        stages as usize <= layers && is_small
    };
    for name in Schedule::names() {
        let possible = Schedule::chunks(name)?;
        for chunks in (1..=CHUNKS).filter(|chunks| possible.contains(chunks)).filter(is_tried) {
            // The own one may have been made for its costs, and is named no better by that.
            let is_own = name == own.schedule && ranks * chunks == own.replicas.largest().stages();
            // A schedule may need other numbers of micro-batches or of ranks.
            if let (false, Ok((_, replicas))) = (is_own, by_schedule(config, name, [ranks, chunks]))
                && replicas.largest().placement().directions() == 1
            {
                all.push(Scheduling { schedule: name.to_owned(), replicas, ..own.clone() });
            }
        }
    }
    if config.pipeline.memory.is_some() && recomputed(config).is_ok() {
        let other = |one: &Scheduling| Scheduling { recomputed: !one.recomputed, ..one.clone() };
        all.extend(all.iter().map(other).collect::<Vec<_>>());
    }
    Ok(all)
}

/// The config with this schedule, and with as many stages as it has then, and the replicas with their
/// schedules.
fn by_schedule(config: &Config, name: &str, sizes: [u32; 2]) -> Result<(Config, Replicas)> {
    let config = with_schedule(config, name, sizes);
    let make = |micro_batches| named(&config, name, micro_batches);
    let replicas = Replicas::new(groups(&config), config.pipeline.replicas, make)?;
    Ok((config, replicas))
}

/// The config with this schedule, and with this many stages on each rank.
fn with_schedule(config: &Config, name: &str, [ranks, chunks]: [u32; 2]) -> Config {
    let mut config = config.clone();
    let pipeline = &mut config.pipeline;
    (pipeline.schedule, pipeline.chunks) = (name.to_owned(), Some(chunks));
    (pipeline.stages, pipeline.partition) = ((ranks * chunks) as usize, Partition::Named(Balanced::Balanced));
    config
}

/// How many layers each stage gets by a schedule, by estimates, if a run with this many stages goes on by it.
/// `None`: as many stages are possible.
///
/// # Errors
/// When there is no such schedule, or more stages than layers.
pub fn counts_by(config: &Config, schedule: &str, stages: usize) -> Result<Option<Vec<usize>>> {
    if schedule == config.pipeline.schedule {
        let counts = estimated_counts(config)?;
        return Ok(Some(counts).filter(|counts| counts.len() != stages));
    }
    let possible = Schedule::chunks(schedule)?;
    let ranks = ranks_of(config)?;
    if stages.is_multiple_of(ranks as usize) && possible.contains(&(stages as u32 / ranks)) {
        return Ok(None);
    }
    estimated_counts(&with_schedule(config, schedule, [ranks, *possible.start()])).map(Some)
}

/// How many stages each rank has, if this many are cut for a schedule.
fn chunks_of(schedule: &str, ranks: u32, stages: usize) -> Result<u32> {
    let chunks = stages as u32 / ranks;
    let each = match Schedule::chunks(schedule).map(RangeInclusive::into_inner) {
        Ok((least, most)) if stages.is_multiple_of(ranks as usize) && (least..=most).contains(&chunks) => {
            return Ok(chunks);
        }
        Ok((least, u32::MAX)) => format!("{least} stages or more"),
        Ok((least, most)) if least == most => counted(least.into(), "stage"),
        Ok((least, most)) => format!("{least} to {most} stages"),
        Err(_) if schedule == AUTO || schedule.starts_with(FILE) => "as many as at launch".to_owned(),
        Err(unknown) => return Err(unknown.into()),
    };
    Err(Error::refused(format!(
        "schedule {schedule} has {each} on each of {}: {} would not fit",
        counted(ranks.into(), "rank"),
        counted(stages as u64, "stage")
    )))
}

/// Refuses what holds more than `pipeline.memory` allows, if it is known what it holds.
fn check_limit(config: &Config, plan: &PipelinePlan) -> Result<()> {
    let (Some(limit), Some(costs)) = (config.pipeline.memory, &plan.costs) else {
        return Ok(());
    };
    let costs = costs.stages(&plan.counts)?;
    let held = Prediction::of_replicas(&plan.replicas, &costs, LinkKind::Buffered)?.peak_memory;
    match held <= limit.bytes() * (1.0 + 1e-9) {
        true => Ok(()),
        false => Err(Error::refused(format!(
            "a rank would hold {} for later backwards, and pipeline.memory allows {limit}",
            Memory::enough(held)
        ))),
    }
}

/// The config and the plan of a run that goes on with another cut than the plan with which it was launched.
///
/// # Errors
/// When the ranks cannot share the stages, or when the schedule cannot have these numbers.
pub fn changed(config: &Config, launched: &PipelinePlan, cut: &Cut) -> Result<(Config, PipelinePlan)> {
    let stages = cut.layers.len();
    let is_launched = cut.schedule == config.pipeline.schedule && stages == launched.counts.len();
    let (mut config, replicas) = match is_launched {
        true => (config.clone(), launched.replicas.clone()),
        false => {
            let ranks = launched.replicas.ranks();
            let chunks = chunks_of(&cut.schedule, ranks, stages)?;
            by_schedule(config, &cut.schedule, [ranks, chunks])?
        }
    };
    let mut costs = launched.costs.clone();
    if let (None, RecomputeBy::Each(words)) = (cut.recompute, &config.pipeline.recompute)
        && words.len() != stages
    {
        return Err(Error::refused(format!(
            "pipeline.recompute has a word for each of {}, and there would be {stages}: say what all of them \
             recompute (--recompute)",
            counted(words.len() as u64, "stage")
        )));
    }
    if let Some(how) = cut.recompute {
        // What a recomputation takes is known from others only for all that is recomputed.
        let measured = recomputed_in_measuring(&config).ok();
        config.pipeline.recompute = RecomputeBy::All(how);
        costs = costs.filter(|_| measured == recomputed_in_measuring(&config).ok());
        costs = costs.map(|costs| costs.recomputed(how == Recompute::Full));
    }
    let counts = cut.layers.clone();
    let plan = PipelinePlan { counts, replicas, costs, prediction: None, ..launched.clone() };
    check_limit(&config, &plan)?;
    Ok((config, plan))
}
