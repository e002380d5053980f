//! How a run changes its cut and its schedule while it goes on.

use std::ops::RangeInclusive;

use pipewright::Cut;
use pipewright::plan::{
    AUTO, LayerCost, LinkCost, ModelCosts, Prediction, Replicas, Scheduling, StageCost, Watch,
};

use pipewright::run::{Change, Replan};
use pipewright::schedule::{LinkKind, Schedule};
use pipewright::stages::Recompute;
use pipewright::stages::units::counted;

use super::shapes::{in_shape, ranks_in_all, shapes, with_schedule};
use crate::compose::costs::{in_file, recomputed, recomputed_in_measuring};
use crate::compose::memory::memory;
use crate::compose::model::{estimated_counts, model, sizes};
use crate::compose::planned::PipelinePlan;
use crate::compose::schedule::{FILE, groups, named, ranks_of};
use crate::config::{Config, Memory, RecomputeBy, ReplanBy};
use crate::error::{Error, Result};

/// What a weight with its optimizer state takes to move, in seconds: 24 bytes at an assumed 1 GB/s. After the
/// first change, the seconds that it took are known.
const MOVES: f64 = 24e-9;

/// The most stages a rank that are tried.
const CHUNKS: u32 = 4;

/// The most stages that are tried, times the layers of the model. Steps wait while such cuts are compared.
const LARGEST_CUT: usize = 2000;

/// The same, added up over all schedules in all shapes: it takes about a second to compare them.
const ALL_CUTS: usize = 20_000;

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
    let limit = config.pipeline.memory.map(Memory::bytes);
    let recompute = recomputed(config).ok();
    let own = Scheduling {
        schedule: config.pipeline.schedule.clone(),
        recomputed: recompute == Some(Recompute::Full),
        replicas: plan.replicas.clone(),
        shards: config.pipeline.shards,
    };
    let (known, cost) = ((costs, is_measured), MOVES * numbers as f64);
    let mut watch =
        Watch::new(known, own.clone(), plan.counts.clone(), limit, cost).mapped(config.launch.map);
    if !config.pipeline.barrier {
        watch = watch.without_barrier();
    }
    let replan = match config.pipeline.replan {
        ReplanBy::Off => Replan::when_asked(watch),
        // Estimates know neither how long transfers take nor how long half a backward takes.
        ReplanBy::Auto if !is_measured => Replan::by_itself(watch),
        ReplanBy::Auto => Replan::by_itself(with_others(watch, config, &own)?),
    };
    let replan = match recompute {
        Some(recompute) => replan.recomputing(recompute),
        None => replan,
    };
    let (config, plan) = (config.clone(), plan.clone());
    Ok(replan.with_memory(move |cut| {
        let changed = changed(&config, &plan, cut);
        changed.and_then(|(config, plan)| memory(&config, &plan)).unwrap_or_default()
    }))
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

/// The watch, with all schedules that the run may change to by itself, in all shapes that it may have. With a
/// memory limit, it may also change whether all is recomputed.
fn with_others(watch: Watch, config: &Config, own: &Scheduling) -> Result<Watch> {
    // A head that is deferred has other bits by another schedule there.
    if config.pipeline.devices.has_gpu() {
        return Ok(watch);
    }
    let layers = model(config)?.names().len();
    let size = |one: &Scheduling| one.replicas.largest().stages() as usize * layers;
    let mut left = ALL_CUTS;
    let mut takes = |others: Vec<Scheduling>| {
        let is_possible = |one: &Scheduling| {
            let rest = left.checked_sub(size(one));
            left = rest.unwrap_or(left);
            rest.is_some()
        };
        others.into_iter().filter(is_possible).collect::<Vec<_>>()
    };
    let mut watch = watch.or(takes(others(config, own, own.replicas.ranks())?));
    let all = ranks_in_all(config, own.replicas.ranks());
    for [replicas, shards] in shapes(config, all) {
        // Some models cannot be divided so.
        let Ok((in_shape, ranks)) = in_shape(config, all, [replicas, shards]) else {
            continue;
        };
        match in_file(&in_shape) {
            Ok(Some(file)) => watch = watch.or_in_shape(file.costs, takes(others(&in_shape, own, ranks)?)),
            Ok(None) => {}
            // What was measured with several shards says nothing of another number.
            Err(_) if shards != config.pipeline.shards => {}
            Err(error) => return Err(error),
        }
    }
    Ok(watch)
}

/// The schedules of a config in its shape, with this many ranks of a replica, and the own scheduling if it is
/// in this shape.
fn others(config: &Config, own: &Scheduling, ranks: u32) -> Result<Vec<Scheduling>> {
    let shape = [config.pipeline.replicas, config.pipeline.shards];
    let is_own_shape = shape == [own.replicas.count(), own.shards];
    let mut all = Vec::from_iter(is_own_shape.then(|| own.clone()));
    let micro_batches = groups(config).largest_share(config.pipeline.replicas);
    let layers = model(config)?.names().len();
    let is_tried = |chunks: &u32| {
        let stages = ranks * chunks;
        let is_small = stages as usize * layers <= LARGEST_CUT && stages * micro_batches <= MOST_CELLS;
        stages as usize <= layers && is_small
    };
    // A rank alone waits for none, by any schedule. With several stages its sums over replicas begin earlier.
    let alone: &[&str] = if config.pipeline.replicas > 1 { &["1f1b", "looped-bfs"] } else { &["1f1b"] };
    for name in Schedule::names().filter(|name| ranks > 1 || alone.contains(name)) {
        let possible = Schedule::chunks(name)?;
        for chunks in (1..=CHUNKS).filter(|chunks| possible.contains(chunks)).filter(is_tried) {
            // The own one may have been made for its costs, and is named no better by that.
            let stages = own.replicas.largest().stages();
            let is_own = is_own_shape && name == own.schedule && ranks * chunks == stages;
            // A schedule may need other numbers of micro-batches or of ranks.
            if let (false, Ok((_, replicas))) = (is_own, by_schedule(config, name, [ranks, chunks]))
                && replicas.largest().placement().directions() == 1
            {
                let (schedule, shards) = (name.to_owned(), config.pipeline.shards);
                all.push(Scheduling { schedule, replicas, shards, ..own.clone() });
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

/// How many layers each stage gets after a change that does not say so, by estimates. `None`: as many as now.
///
/// # Errors
/// When there is no such schedule, when there are more stages than layers, or when the ranks cannot have this
/// shape.
pub fn counts_after(config: &Config, now: &Cut, change: &Change) -> Result<Option<Vec<usize>>> {
    let cut = change.clone().of(now);
    if change.schedule.is_none() && [cut.replicas, cut.shards] == [now.replicas, now.shards] {
        return Ok(None);
    }
    let (schedule, stages) = (&cut.schedule, now.layers.len());
    let pipeline = &config.pipeline;
    let launched = ranks_of(config)?;
    let all = ranks_in_all(config, launched);
    let shape = [cut.replicas, cut.shards];
    let is_in_shape = shape == [pipeline.replicas, pipeline.shards];
    if *schedule == pipeline.schedule && is_in_shape {
        let counts = estimated_counts(config)?;
        return Ok(Some(counts).filter(|counts| counts.len() != stages));
    }
    let (in_shape, ranks) = match is_in_shape {
        true => (config.clone(), launched),
        false => in_shape(config, all, shape)?,
    };
    let possible = match Schedule::chunks(schedule) {
        Ok(possible) => possible,
        Err(_) if [&now.schedule, &pipeline.schedule].contains(&schedule) => {
            return Err(made_at_launch(schedule));
        }
        Err(unknown) => return Err(unknown.into()),
    };
    let ranks_now = all / now.replicas.saturating_mul(now.shards).max(1);
    let chunks = match stages as u32 / ranks_now.max(1) {
        chunks if possible.contains(&chunks) => chunks,
        _ => *possible.start(),
    };
    let (wanted, layers) = ((ranks * chunks) as usize, model(config)?.names().len());
    if wanted == stages {
        return Ok(None);
    }
    if wanted > layers {
        return Err(Error::refused(format!(
            "schedule {schedule} needs {wanted} stages, {chunks} on each of {}, and the model has {layers} \
             layers: take another schedule, or more replicas or shards",
            counted(ranks.into(), "rank")
        )));
    }
    estimated_counts(&with_schedule(&in_shape, schedule, [ranks, chunks])).map(Some)
}

/// A schedule that was made when the run began is only for the shape of then.
fn made_at_launch(schedule: &str) -> Error {
    Error::refused(format!(
        "schedule {schedule} was made for the replicas and ranks at launch: take a schedule with a name, \
         such as zb-h1 (--schedule)"
    ))
}

/// How many stages each rank has, if this many are cut for a schedule. `is_in_shape`: whether the ranks are
/// in the shape at launch.
fn chunks_of(schedule: &str, ranks: u32, stages: usize, is_in_shape: bool) -> Result<u32> {
    let chunks = stages as u32 / ranks;
    let each = match Schedule::chunks(schedule).map(RangeInclusive::into_inner) {
        Ok((least, most)) if stages.is_multiple_of(ranks as usize) && (least..=most).contains(&chunks) => {
            return Ok(chunks);
        }
        Ok((least, u32::MAX)) => format!("{least} stages or more"),
        Ok((least, most)) if least == most => counted(least.into(), "stage"),
        Ok((least, most)) => format!("{least} to {most} stages"),
        Err(_) if schedule == AUTO || schedule.starts_with(FILE) => match is_in_shape {
            true => "as many as at launch".to_owned(),
            false => return Err(made_at_launch(schedule)),
        },
        Err(unknown) => return Err(unknown.into()),
    };
    Err(Error::refused(format!(
        "schedule {schedule} has {each} on each of {}: {} would not fit",
        counted(ranks.into(), "rank"),
        counted(stages as u64, "stage")
    )))
}

/// Refuses what holds more than `pipeline.memory` allows, or what nobody knows.
fn check_limit(config: &Config, plan: &PipelinePlan) -> Result<()> {
    let Some(limit) = config.pipeline.memory else {
        return Ok(());
    };
    let Some(costs) = &plan.costs else {
        return Err(Error::refused(format!(
            "it is not known whether a rank would hold more than pipeline.memory allows ({limit}): the costs \
             in pipeline.costs were measured with another pipeline.recompute, or with other shards"
        )));
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
/// When the ranks cannot share the stages, when the schedule cannot have these numbers, or when the ranks
/// cannot have this shape.
pub fn changed(config: &Config, launched: &PipelinePlan, cut: &Cut) -> Result<(Config, PipelinePlan)> {
    let stages = cut.layers.len();
    let is_in_shape = [cut.replicas, cut.shards] == [config.pipeline.replicas, config.pipeline.shards];
    let is_launched =
        is_in_shape && cut.schedule == config.pipeline.schedule && stages == launched.counts.len();
    let (mut config, replicas) = match is_launched {
        true => (config.clone(), launched.replicas.clone()),
        false => {
            let shape = [cut.replicas, cut.shards];
            let (config, ranks) = match is_in_shape {
                true => (config.clone(), launched.replicas.ranks()),
                false => in_shape(config, ranks_in_all(config, launched.replicas.ranks()), shape)?,
            };
            let chunks = chunks_of(&cut.schedule, ranks, stages, is_in_shape)?;
            by_schedule(&config, &cut.schedule, [ranks, chunks])?
        }
    };
    let mut costs = match is_in_shape {
        true => launched.costs.clone(),
        // Costs that were measured with other shards say nothing of these.
        false => match in_file(&config) {
            Err(error) if config.pipeline.memory.is_some() => return Err(error),
            file => file.ok().flatten().map(|file| file.costs.under(replicas.largest())),
        },
    };
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
