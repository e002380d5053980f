//! The memory that a config's training needs.

use std::mem::take;

use pipewright::stages::models::UnitSizes;
use pipewright::stages::optimizer::PASSAGE;
use pipewright::stages::{DType, Device, Place, Recompute};

use super::held::cost;
use super::model::{Sizes, recomputed_by_stage, sizes, sizes_under};
use super::trained::{Tied, Trained, states_of_a_weight, trained};
use super::{PipelinePlan, places, places_of_all};
use crate::config::{Config, Fabric, ReplanBy, environment};
use crate::error::Result;
use pipewright::plan::{
    self, Costs, DataMemory, RankMemory, Restarts, StageCost, StageMemory, kept_for_restarts,
};

/// Bytes of a number on the CPU, of a weight, and of an optimizer's number.
const F32: f64 = 4.0;

/// Bytes of the host for each micro-batch of a stage: its actions in the schedule, what the checker and the
/// forecast know of them, and what is measured of them. With 100,000 micro-batches of almost nothing, a run
/// held 1,910 of one stage, 1,580 of each of two and 1,490 of each of four (25 November 2026).
const OF_CELL: f64 = 1600.0;

/// The most memory that each rank of a pipeline, or each shard of one, holds while it trains this config, in
/// the replica that holds most. It is an estimate from the sizes of the model, the schedule and, if known,
/// the measured sizes of what layers keep. Nothing is allocated for it.
///
/// # Errors
/// As for [`places`]. Also when the plan belongs to another config.
pub fn memory(config: &Config, plan: &PipelinePlan) -> Result<Vec<RankMemory>> {
    let Sizes { input, target, .. } = sizes(config)?;
    let schedule = plan.replicas.largest();
    let (estimated, stages) = each_stage(config, plan)?;
    let costs = match &plan.costs {
        Some(measured) => measured.stages(&plan.counts)?,
        None => Costs::each(estimated, 0.0)?,
    };
    let data = DataMemory { input: F32 * input as f64, target: F32 * target as f64 };
    let mut ranks = plan::memory(schedule, &costs, &stages, data)?;
    let places = places(config, schedule.ranks())?;
    for ((rank, chunks), place) in ranks.iter_mut().zip(schedule.placement().chunks()).zip(&places) {
        if place.device == Device::Cpu {
            rank.buffers += OF_CELL * f64::from(chunks) * f64::from(schedule.micro_batches());
        }
    }
    if !config.pipeline.barrier {
        for (stage, on) in stages.iter().zip(schedule.placement().iter()) {
            ranks[on.index()].buffers += stage.snapshot;
        }
    }
    if config.train.restarts > 0 {
        // If no fabric can be used, the run is refused later.
        let fabric = config.fabric(&environment());
        let restarts = Restarts {
            every: config.train.snapshot_every,
            from_replicas: from_replicas(plan),
            replaces: fabric.is_ok_and(|(fabric, _)| matches!(fabric, Fabric::Sockets(_))),
        };
        let kept = kept_for_restarts(schedule, &stages, restarts);
        for ((rank, kept), place) in ranks.iter_mut().zip(kept).zip(&places) {
            rank.buffers += kept.received;
            match place.device {
                Device::Cpu => rank.buffers += kept.snapshots,
                // The optimizer's tensors are copied to the host first, and stay there.
                Device::Cuda(_) => rank.snapshots += kept.snapshots + rank.optimizer,
            }
        }
    }
    if config.optimizer.state_on_host {
        let on_gpus = ranks.iter_mut().zip(places).filter(|(_, place)| place.device != Device::Cpu);
        for (rank, _) in on_gpus.filter(|(rank, _)| rank.optimizer > 0.0) {
            rank.state_on_host = take(&mut rank.optimizer);
            rank.buffers += PASSAGE as f64;
        }
    }
    Ok(ranks)
}

/// The bytes that a rank receives in a step, as a multiple of the bytes of its gradients. It receives the
/// other replicas' sums of the gradients that it owns, and the totals or new weights that the others own.
fn from_replicas(plan: &PipelinePlan) -> f64 {
    let [replicas, sums] = [plan.replicas.count(), plan.replicas.sums()].map(f64::from);
    (1.0 - 1.0 / replicas) * (1.0 + sums / replicas)
}

/// Costs for a plan that nothing was measured for. Every pass takes the time 1. What is kept is estimated, in
/// units of this many bytes.
///
/// # Errors
/// As for [`memory`].
pub fn estimated_costs(config: &Config, plan: &PipelinePlan, bytes: f64) -> Result<Costs> {
    let (mut stages, _) = each_stage(config, plan)?;
    for cost in &mut stages {
        for size in [&mut cost.saved, &mut cost.stays, &mut cost.pending, &mut cost.restored] {
            *size /= bytes;
        }
    }
    Ok(Costs::each(stages, 0.0)?)
}

/// What each stage keeps of a micro-batch, and what it needs under any schedule.
fn each_stage(config: &Config, plan: &PipelinePlan) -> Result<(Vec<StageCost>, Vec<StageMemory>)> {
    let schedule = plan.replicas.largest();
    let places = places(config, schedule.ranks())?;
    let last = places[schedule.rank_of(schedule.last_stage()).index()].device;
    let Sizes { mut units, input, .. } = sizes_under(config, schedule, last)?;
    let how = recomputed_by_stage(config, plan.counts.len())?;
    let per_weight = PerWeight::of(config, plan);
    let lends = lends_gradients(config, plan)?;
    // Copies of the embedding's table on its rank have its weights on a GPU, and no state of the optimizer.
    let table = schedule.placement().iter().next();
    let trained = trained(config)?;
    for (unit, numbers) in units.iter_mut().zip(trained.iter().flatten()) {
        pack_less(unit, *numbers);
    }
    let mut left = units.as_slice();
    let (mut unit, mut all_frozen) = (0, true);
    // Images are read in the format of the activations. Ids have four bytes.
    let bytes = match config.reads_tokens() {
        true => F32,
        false => places[0].dtype.bytes() as f64,
    };
    let mut read = bytes * input as f64;
    let (mut costs, mut stages) = (Vec::new(), Vec::new());
    for ((&count, how), rank) in plan.counts.iter().zip(how).zip(schedule.placement().iter()) {
        let (stage, rest) = left.split_at(count.min(left.len()));
        let place = places[rank.index()];
        let trained =
            trained.as_ref().map(|units| units[unit..unit + stage.len()].iter().copied().sum::<Trained>());
        let has_table = unit == 0;
        unit += stage.len();
        let mut memory = of_stage(stage, trained, place, per_weight, how, table == Some(rank));
        if lends {
            let copies = if has_table { &units[..] } else { stage };
            let tied = F32 * copies.iter().map(|unit| unit.tied).sum::<u64>() as f64;
            memory.lent = (memory.gradients - memory.waiting - tied).max(0.0);
            memory.own = memory.lent / per_weight.parts;
        }
        let whole = stage.iter().map(|unit| unit.pending_whole).sum::<u64>() as f64;
        let whole = place.dtype.bytes() as f64 * whole;
        let mut cost = divided(cost(stage, place, how, read), whole, config.pipeline.shards);
        if costs.is_empty() && config.reads_tokens() {
            cost.stays = read.min(cost.saved);
        }
        all_frozen &= trained.is_some_and(|numbers| numbers.all > 0 && numbers.trained == 0);
        costs.push(match trained {
            // No gradient goes to this stage.
            Some(_) if all_frozen => StageCost { forward: cost.forward, ..StageCost::NOTHING },
            Some(Trained { all, trained, .. }) => StageCost {
                backward_weight: cost.backward_weight * trained as f64 / all.max(1) as f64,
                ..cost
            },
            None => cost,
        });
        read = memory.output;
        stages.push(memory.divided(config.pipeline.shards));
        left = rest;
    }
    Ok((costs, stages))
}

/// Whether the stages of a rank may use the same memory for their gradients.
fn lends_gradients(config: &Config, plan: &PipelinePlan) -> Result<bool> {
    let replicas = &plan.replicas;
    if replicas.count() == 1
        || !config.divides_updates()
        || config.max_staleness() > 0
        || config.is_private()
        || config.pipeline.shards > 1
    {
        return Ok(false);
    }
    let places = places_of_all(config, replicas.ranks())?;
    Ok(places.iter().all(|place| place.device == Device::Cpu)
        && (0..replicas.count()).all(|replica| replicas.schedule(replica).goes_back_by_stage()))
}

/// No packed copy is kept of quantised matrices.
fn pack_less(unit: &mut UnitSizes, numbers: Trained) {
    let share = 1.0 - numbers.quantised as f64 / numbers.matrices.max(1) as f64;
    for packed in [&mut unit.packed, &mut unit.packed_bf16] {
        *packed = (*packed as f64 * share) as u64;
    }
}

/// The cost of a shard of a stage, in memory. It keeps these `whole` bytes for backward-weight of all rows.
fn divided(cost: StageCost, whole: f64, shards: u32) -> StageCost {
    let part = |bytes: f64| bytes / f64::from(shards);
    let whole = whole.min(cost.pending);
    let pending = part(cost.pending - whole) + whole;
    StageCost { saved: part(cost.saved), pending, restored: part(cost.restored), ..cost }
}

/// How many numbers a rank holds for each weight.
#[derive(Clone, Copy)]
struct PerWeight {
    weights: f64,
    /// Gradients, but for the sums of gradient groups that wait.
    gradients: f64,
    /// These sums.
    waiting: f64,
    /// These sums where they are added in place.
    waiting_in_place: f64,
    /// With differential privacy: the gradients of micro-batches, which are kept until the end of a step.
    apart: f64,
    /// Of the optimizer, in numbers of 32 bits, if it keeps equally much for each weight.
    states: f64,
    /// Into how many parts the optimizer's numbers are divided.
    parts: f64,
    /// Copies for checkpoints, of weights and of the optimizer's numbers.
    copies: f64,
    /// Whether several threads share a product.
    shares_products: bool,
}

impl PerWeight {
    fn of(config: &Config, plan: &PipelinePlan) -> Self {
        let replicas = f64::from(plan.replicas.count());
        let parts = match config.divides_updates() {
            true => replicas,
            false => 1.0,
        };
        let is_private = config.is_private();
        let all = Self {
            weights: 1.0,
            gradients: 1.0,
            // Gradients that were kept apart leave their memory for these sums.
            waiting: if is_private { 0.0 } else { f64::from(plan.replicas.waiting_sums(false)) },
            waiting_in_place: if is_private { 0.0 } else { f64::from(plan.replicas.waiting_sums(true)) },
            apart: if is_private { f64::from(plan.replicas.largest_share()) } else { 0.0 },
            states: states_of_a_weight(config),
            parts,
            // A new cut uses the same memory.
            copies: f64::from(u8::from(config.saves_beside() || config.pipeline.replan == ReplanBy::Auto)),
            shares_products: config.pipeline.threads_per_rank > 1,
        };
        match config.max_staleness() {
            0 => all,
            max_staleness => {
                // What a rank owns of weights and their gradient, apart from its stages; what other owners
                // have sent, two versions at most; and the sums of steps that wait to become updates. At the
                // end of the run and at each checkpoint none waits.
                let every = Some(config.checkpoint.every).filter(|&every| every > 0);
                let most = every.map_or(config.train.steps, |every| every.min(config.train.steps));
                let steps = most.min(1 + u64::from(max_staleness)) as f64;
                let owned = 1.0 / replicas;
                let sums = owned * (1.0 + steps * f64::from(plan.replicas.sums()));
                Self {
                    weights: all.weights + owned + 2.0 * (1.0 - owned),
                    gradients: all.gradients + sums,
                    ..all
                }
            }
        }
    }
}

/// `trained`: the numbers of the stage, if not all weights are trained alike. What layers keep for gradients
/// of frozen weights is counted too: the estimate is an upper bound then. `follows`: its tied copies follow
/// the embedding's table.
fn of_stage(
    units: &[UnitSizes],
    trained: Option<Trained>,
    place: Place,
    per_weight: PerWeight,
    how: Recompute,
    follows: bool,
) -> StageMemory {
    let all = F32 * units.iter().map(|unit| unit.weights).sum::<u64>() as f64;
    let (states, parts) = (per_weight.states, per_weight.parts);
    let tied_copies = units.iter().map(|unit| unit.tied).sum::<u64>();
    // Of the optimizer: all that is kept for the stage.
    let (in_bytes, optimizer, tied) = match trained {
        Some(numbers) => {
            let Trained { all, trained, frozen_matrices, quantised, .. } = numbers;
            let counts = [all, trained, frozen_matrices, quantised];
            (counts.map(|count| F32 * count as f64), numbers.optimizer as f64, numbers.tied)
        }
        None => {
            let optimizer = (F32 * states * tied_copies as f64) as u64;
            let tied = Tied { trained: tied_copies, optimizer, ..Tied::default() };
            ([all, all, 0.0, 0.0], states * all, tied)
        }
    };
    let [weights, trained_bytes, only_copied, quantised] = in_bytes;
    let decoded = match (trained, place.device) {
        (Some(numbers), Device::Cpu) if per_weight.shares_products => numbers.decoded,
        (Some(numbers), Device::Cuda(_)) => numbers.decoded_on_gpu,
        _ => 0,
    };
    let quantised_bytes = trained.map_or(0, |numbers| numbers.quantised_bytes);
    let trained = trained_bytes;
    let tied = if follows { tied } else { Tied::default() };
    let in_blocks = match place.device {
        Device::Cpu => quantised_bytes,
        Device::Cuda(_) => quantised_bytes - tied.quantised_bytes,
    };
    let optimizer = optimizer - tied.optimizer as f64;
    let [shared, shared_copy] = [tied.trained, tied.trained + tied.frozen].map(|count| F32 * count as f64);
    // This replica's part.
    let own = optimizer / parts;
    let activation = place.dtype.bytes() as f64;
    let in_place = match place.device {
        Device::Cpu => trained.min(F32 * units.iter().map(|unit| unit.in_place).sum::<u64>() as f64),
        Device::Cuda(_) => 0.0,
    };
    // On a GPU, products read the weights themselves; with `bf16` they read a copy.
    let all = |size: fn(&UnitSizes) -> u64| units.iter().map(size).sum::<u64>() as f64;
    // They are on the host, also the copies of a stage on a GPU.
    let copies = match place.device {
        Device::Cpu => per_weight.copies,
        Device::Cuda(_) => 0.0,
    };
    let (packed, copy) = match (place.device, place.dtype) {
        (Device::Cpu, DType::F32) => (F32 * all(|unit| unit.packed), 0.0),
        (Device::Cpu, DType::Bf16) => (activation * all(|unit| unit.packed_bf16), 0.0),
        (Device::Cuda(_), DType::Bf16) => (0.0, (weights - quantised - shared_copy) / 2.0),
        (Device::Cuda(_), DType::F32) => (0.0, 0.0),
    };
    let in_f32 = match (place.device, place.dtype) {
        (Device::Cuda(_), DType::Bf16) => weights - only_copied - shared,
        (Device::Cuda(_), DType::F32) => weights - quantised - shared_copy,
        (Device::Cpu, _) => weights - quantised,
    };
    // What a unit recomputes is in memory while its backward runs.
    let working = |unit: &UnitSizes| {
        let working = match (place.device, place.dtype) {
            (Device::Cpu, DType::Bf16) => unit.working_bf16,
            (Device::Cpu, DType::F32) => unit.working,
            (Device::Cuda(_), _) => unit.working + unit.more_on_gpu,
        };
        match how {
            Recompute::Selective => working + unit.saved - unit.selective,
            Recompute::None | Recompute::Cheap | Recompute::Full => working,
        }
    };
    let waiting = per_weight.waiting * (trained - in_place)
        + per_weight.waiting_in_place * in_place
        + per_weight.apart * trained;
    let windows = match place.device {
        Device::Cpu => 0,
        Device::Cuda(_) => units.iter().map(|unit| unit.windows_on_gpu).max().unwrap_or(0),
    };
    StageMemory {
        weights: per_weight.weights * (in_f32 + in_blocks as f64) + copy,
        gradients: per_weight.gradients * trained + waiting,
        waiting,
        lent: 0.0,
        own: 0.0,
        optimizer: own,
        snapshot: trained + own,
        copies: copies * (weights - quantised + optimizer),
        packed,
        working: activation * (units.iter().map(working).max().unwrap_or(0) + decoded) as f64
            + windows as f64,
        output: activation * units.last().map_or(0, |unit| unit.output) as f64,
    }
}
