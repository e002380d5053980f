//! The memory that a config's training needs, and the check that the machine has it.

use pipewright_stages::devices::name_and_memory;
use pipewright_stages::models::UnitSizes;
use pipewright_stages::units::in_words;
use pipewright_stages::{DType, Device, Place, Recompute};

use super::costs::recomputed;
use super::model::{Sizes, model, recomputed_by_stage, sizes};
use super::schedule::unfitted;
use super::{PipelinePlan, optimizer, places};
use crate::config::{self, Config, RecomputeBy, environment};
use crate::error::{Error, Result, ValueProblem};
use crate::mesh::Mesh;
use crate::plan::{self, Costs, DataMemory, RankMemory, StageCost, StageMemory};
use crate::profile::MemoryLimit;
use crate::schedule::Schedule;

/// Bytes of a number on the CPU, of a weight, and of an optimizer's number.
const F32: f64 = 4.0;

/// The most memory that each rank holds while it trains this config. It is an estimate from the sizes of the
/// model, the schedule and, if known, the measured sizes of what layers keep. Nothing is allocated for it.
///
/// # Errors
/// As for [`places`]. Also when the plan belongs to another config.
pub fn memory(config: &Config, plan: &PipelinePlan) -> Result<Vec<RankMemory>> {
    let schedule = &plan.schedule;
    let Sizes { units, input, target } = sizes(config);
    let how = recomputed_by_stage(config, plan.counts.len())?;
    let places = places(config, schedule.ranks())?;
    let states = optimizer(config).state_names().len() as f64;
    let mut left = units.as_slice();
    let mut read = F32 * input as f64;
    let mut stages = Vec::new();
    let mut costs = Vec::new();
    for ((&count, how), rank) in plan.counts.iter().zip(how).zip(schedule.placement().iter()) {
        let (stage, rest) = left.split_at(count.min(left.len()));
        let place = places[rank.index()];
        costs.push(cost(stage, place, how, read));
        stages.push(of_stage(stage, place, states, how));
        read = stages.last().map_or(read, |stage| stage.output);
        left = rest;
    }
    let costs = match &plan.costs {
        Some(measured) => measured.stages(&plan.counts)?,
        None => Costs::each(costs, 0.0)?,
    };
    let data = DataMemory {
        input: F32 * input as f64,
        target: F32 * target as f64,
    };
    plan::memory(schedule, &costs, &stages, data)
}

/// What a stage of these units keeps of a micro-batch. All its passes take the same time, because only their
/// order matters here.
fn cost(units: &[UnitSizes], place: Place, how: Recompute, read: f64) -> StageCost {
    let bytes = place.dtype.bytes() as f64;
    let sum = |size: fn(&UnitSizes) -> u64| bytes * units.iter().map(size).sum::<u64>() as f64;
    let shared: u64 = units.iter().skip(1).map(|unit| unit.shared).sum();
    let kept: fn(&UnitSizes) -> u64 = match how {
        Recompute::Selective => |unit| unit.selective,
        Recompute::None | Recompute::Full => |unit| unit.saved,
    };
    let cost = StageCost {
        saved: sum(kept) - bytes * shared as f64,
        pending: sum(|unit| unit.pending),
        ..StageCost::default()
    };
    match how {
        Recompute::Full => cost.recomputed(read),
        Recompute::None | Recompute::Selective => cost,
    }
}

fn of_stage(units: &[UnitSizes], place: Place, states: f64, how: Recompute) -> StageMemory {
    let weights = F32 * units.iter().map(|unit| unit.weights).sum::<u64>() as f64;
    let activation = place.dtype.bytes() as f64;
    // On a GPU, products read the weights themselves; with `bf16` they read a copy.
    let (packed, copy) = match (place.device, place.dtype) {
        (Device::Cpu, _) => (
            F32 * units.iter().map(|unit| unit.packed).sum::<u64>() as f64,
            0.0,
        ),
        (Device::Cuda(_), DType::Bf16) => (0.0, weights / 2.0),
        (Device::Cuda(_), DType::F32) => (0.0, 0.0),
    };
    // What a unit recomputes is in memory while its backward runs.
    let working = |unit: &UnitSizes| match how {
        Recompute::Selective => unit.working + unit.saved - unit.selective,
        Recompute::None | Recompute::Full => unit.working,
    };
    StageMemory {
        weights: weights + copy,
        gradients: weights,
        optimizer: states * weights,
        packed,
        working: activation * units.iter().map(working).max().unwrap_or(0) as f64,
        output: activation * units.last().map_or(0, |unit| unit.output) as f64,
    }
}

/// Refuses training for which a device of this process has too little memory, by the estimate of [`memory`].
///
/// # Errors
/// The error names the key to change. As for [`places`] too. Also when the environment does not say which
/// process this is.
pub fn check_memory(config: &Config, ranks: &[RankMemory]) -> Result<()> {
    let places = places(config, ranks.len() as u32)?;
    let [process, processes] = config::processes(&environment())?.unwrap_or([0, 1]);
    let mesh = Mesh::of_pipeline(ranks.len() as u32, processes, &places)?;
    let here = || mesh.ranks_of(process);
    let mut devices: Vec<Device> = here().map(|rank| mesh.place(rank).device).collect();
    devices.sort();
    devices.dedup();
    for device in devices {
        let of_device = here().filter(|&rank| mesh.place(rank).device == device);
        let needed = sum(of_device.map(|rank| &ranks[mesh.coordinate(rank).rank.index()]));
        if let Some((limit, whose)) = limit(device).filter(|(limit, _)| needed.total() > *limit) {
            return Err(too_much(config, needed, limit, &whose));
        }
    }
    Ok(())
}

/// Refuses to measure if this machine or a GPU has too little memory for it.
///
/// # Errors
/// As for [`check_memory`]. Also when the model has fewer layers than ranks.
pub fn check_memory_to_measure(config: &Config) -> Result<()> {
    let mut config = config.clone();
    // Layers are measured without full recomputation, even where their stages recompute everything.
    let word = match recomputed(&config)? {
        Recompute::Selective => Recompute::Selective,
        Recompute::None | Recompute::Full => Recompute::None,
    };
    config.pipeline.recompute = RecomputeBy::All(word);
    let units = model(&config)?;
    let ranks = unfitted(&config)?.ranks().min(units.names().len() as u32);
    let schedule = Schedule::named("zb-h1", ranks, config.pipeline.micro_batches)?;
    let mut devices = places(&config, unfitted(&config)?.ranks())?;
    devices.truncate(ranks as usize);
    config.pipeline.devices.0 = devices.iter().map(|place| place.device).collect();
    let plan = PipelinePlan {
        counts: units.balanced(ranks)?,
        schedule: schedule.in_turn(),
        costs: None,
        prediction: None,
        why: None,
        warning: None,
    };
    check_memory(&config, &memory(&config, &plan)?)
}

fn sum<'a>(ranks: impl Iterator<Item = &'a RankMemory>) -> RankMemory {
    ranks.fold(RankMemory::default(), |sum, rank| RankMemory {
        weights: sum.weights + rank.weights,
        gradients: sum.gradients + rank.gradients,
        optimizer: sum.optimizer + rank.optimizer,
        activations: sum.activations + rank.activations,
        buffers: sum.buffers + rank.buffers,
    })
}

/// The bytes of a device, and a text that says whose limit it is. `None` if unknown: a GPU that is missing is
/// refused later.
fn limit(device: Device) -> Option<(f64, String)> {
    match device {
        Device::Cpu => MemoryLimit::here().map(|limit| (limit.bytes as f64, limit.set_by.to_owned())),
        Device::Cuda(index) => {
            let (name, bytes) = name_and_memory(index).ok()?;
            Some((bytes as f64, format!("{device} ({name}) has")))
        }
    }
}

fn too_much(config: &Config, needed: RankMemory, limit: f64, whose: &str) -> Error {
    let of_batch = needed.activations + needed.buffers;
    let of_model = needed.weights + needed.gradients + needed.optimizer;
    let (key, advice) = match of_batch > of_model {
        true => (
            config.rows_key(),
            "lower it, recompute (pipeline.recompute), or spread the model over more machines or GPUs",
        ),
        false => (
            "model",
            "make the model narrower or shallower, or spread it over more machines or GPUs",
        ),
    };
    let problem = ValueProblem::TooMuchMemory {
        needed: in_words(needed.total()),
        whose: whose.to_owned(),
        limit: in_words(limit),
        of_model: in_words(of_model),
        of_batch: in_words(of_batch),
        advice,
    };
    config.refuse(key, problem)
}
