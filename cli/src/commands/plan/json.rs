//! A plan as JSON, for scripts.

use serde::Serialize;

use super::{Plan, Training};
use crate::Result;
use pipewright::id::Rank;
use pipewright::plan::RankSimulation;
use pipewright::schedule::{MoveStep, Schedule};

/// Lists have one entry a rank.
#[derive(Serialize)]
struct Printed<'a> {
    schedule: &'a str,
    replicas: u32,
    /// The replica that the rest is for.
    replica: u32,
    ranks: u32,
    stages: u32,
    chunks: u32,
    micro_batches: u32,
    span: f64,
    makespan: f64,
    bubble_span: f64,
    bubble_makespan: f64,
    step_with_barrier: f64,
    /// Only for one replica.
    #[serde(skip_serializing_if = "Option::is_none")]
    step_without_barrier: Option<f64>,
    bubble_step: f64,
    exposed_reduction: f64,
    exposed_transfer: f64,
    /// Only for schedules with reductions.
    #[serde(skip_serializing_if = "Option::is_none")]
    exposed_reductions: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    targets_per_second: Option<f64>,
    /// Only with a config.
    #[serde(skip_serializing_if = "Option::is_none")]
    memory: Option<Vec<Memory>>,
    busy: Vec<f64>,
    warm_up: Vec<f64>,
    waiting: Vec<f64>,
    /// How many activations are offloaded, how long their copies take, and how much of `waiting` is for
    /// these. Only for schedules that offload.
    #[serde(skip_serializing_if = "Option::is_none")]
    offloaded: Option<Vec<usize>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    copies: Option<Vec<f64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    waiting_for_copies: Option<Vec<f64>>,
    drain: Vec<f64>,
    waits: Vec<Vec<Waited>>,
    peak_activations: Vec<f64>,
    peak_memory: Vec<f64>,
    actions: Vec<Vec<String>>,
}

#[derive(Serialize)]
struct Waited {
    on: u32,
    time: f64,
}

/// Bytes that a rank holds, by the estimate.
#[derive(Serialize)]
struct Memory {
    weights: f64,
    gradients: f64,
    optimizer: f64,
    copies: f64,
    activations: f64,
    buffers: f64,
    all: f64,
    /// What is on the host, and not among all.
    offloaded: f64,
    snapshots: f64,
    state_on_host: f64,
}

/// The plan as one line of JSON.
pub(super) fn json(plan: &Plan<'_>) -> Result<String> {
    let (schedule, simulation) = (plan.schedule, &plan.simulation);
    let training = plan.subject.training.as_ref();
    let each = |figure: fn(&RankSimulation) -> f64| simulation.ranks.iter().map(figure).collect();
    let offloads = schedule.offloads();
    let printed = Printed {
        schedule: schedule.name(),
        replicas: plan.subject.replicas.count(),
        replica: plan.replica,
        ranks: schedule.ranks(),
        stages: schedule.stages(),
        chunks: schedule.stages() / schedule.ranks(),
        micro_batches: schedule.micro_batches(),
        span: simulation.span,
        makespan: simulation.makespan,
        bubble_span: simulation.bubble_span,
        bubble_makespan: simulation.bubble_makespan,
        step_with_barrier: plan.prediction.step,
        step_without_barrier: plan.period,
        bubble_step: plan.prediction.bubble,
        exposed_reduction: plan.exposed.reductions / plan.prediction.step,
        exposed_transfer: plan.exposed.transfers / plan.prediction.step,
        exposed_reductions: schedule.has_reductions().then_some(simulation.exposed_reductions),
        targets_per_second: training.and_then(|training| training.rate),
        memory: training.map(memory),
        busy: each(|rank| rank.busy),
        warm_up: each(|rank| rank.warm_up),
        waiting: each(|rank| rank.waiting),
        offloaded: offloads.then(|| offloaded(schedule)),
        copies: offloads.then(|| each(|rank| rank.copies)),
        waiting_for_copies: offloads.then(|| each(|rank| rank.copying)),
        drain: each(|rank| rank.drain),
        waits: simulation.ranks.iter().map(waits).collect(),
        peak_activations: each(|rank| rank.peak_activations),
        peak_memory: each(|rank| rank.peak_memory),
        actions: (0..schedule.ranks()).map(|rank| plan.actions(rank)).collect(),
    };
    crate::commands::json(&printed)
}

fn offloaded(schedule: &Schedule) -> Vec<usize> {
    let count = |rank| {
        let moves = schedule.moves(Rank(rank)).into_iter();
        moves.filter(|next| next.step == MoveStep::Out).count()
    };
    (0..schedule.ranks()).map(count).collect()
}

fn memory(training: &Training) -> Vec<Memory> {
    let ranks = training.memory.iter();
    ranks
        .map(|rank| Memory {
            weights: rank.weights,
            gradients: rank.gradients,
            optimizer: rank.optimizer,
            copies: rank.copies,
            activations: rank.activations,
            buffers: rank.buffers,
            all: rank.total(),
            offloaded: rank.offloaded,
            snapshots: rank.snapshots,
            state_on_host: rank.state_on_host,
        })
        .collect()
}

fn waits(rank: &RankSimulation) -> Vec<Waited> {
    let waited = rank.waits.iter();
    waited.map(|wait| Waited { on: wait.on.0, time: wait.time }).collect()
}
