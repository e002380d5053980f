//! Schedules as pure data: who makes them, what the checker accepts, what they cost, and how they look.

mod auto;
mod check;
mod choose;
mod deadlocks;
mod drawing;
mod fixtures;
#[path = "../common/has.rs"]
mod has;
mod mesh;
mod mutants;
mod oracle;
mod partition;
mod plan;
mod printed;
mod random;
mod reductions;
mod replicas;
mod schedule;
mod several_stages;
mod simulator;
mod vee;
mod zero_bubble;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use has::has;
use pipewright::groups::GradientGroups;
use pipewright::id::{Rank, StageId};
use pipewright::mesh::Map;
use pipewright::plan::{
    Costs, LayerCost, LinkCost, ModelCosts, Prediction, Replicas, Setting, Simulation, StageCost, period,
    simulate,
};
use pipewright::schedule::{
    Action, Cell, Error, Flow, LinkKind, Pass, Placement, PlacementSpec, Schedule, replay,
};
use printed::{folder, table};
use proptest::prelude::*;
use proptest::sample::Index;
use random::{random_placement, random_rows};

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1.0)
}

fn simulated(schedule: &Schedule, costs: &Costs) -> Simulation {
    simulate(schedule, costs, LinkKind::Buffered).unwrap()
}

/// Three passes with these times.
fn costs([forward, backward_input, backward_weight]: [f64; 3], comm: f64) -> Costs {
    let share = StageCost { forward, backward_input, backward_weight, ..StageCost::default() };
    Costs::share(share, comm).unwrap()
}

/// The most activations that each rank holds.
fn peaks(simulation: &Simulation) -> Vec<f64> {
    simulation.ranks.iter().map(|rank| rank.peak_activations).collect()
}

/// The most activations that a rank holds.
fn peak(simulation: &Simulation) -> f64 {
    peaks(simulation).into_iter().fold(0.0, f64::max)
}

/// A text without the white space around its lines.
fn lines(text: &str) -> String {
    text.lines().map(|line| format!("{}\n", line.trim())).collect()
}

/// A schedule in CSV, one that may need buffered links.
fn read(csv: &str) -> Schedule {
    Schedule::from_csv("own", csv, None, LinkKind::Buffered).unwrap().schedule
}
