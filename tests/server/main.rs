//! Replicas that are kept alike by a parameter server: with staleness 0 the same bits as by reductions, with
//! more never staler than allowed.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/has.rs"]
mod has;
#[path = "../common/worlds.rs"]
mod worlds;

mod ends;
mod refusals;
mod stale;

use std::sync::Arc;

use common::*;
use has::has;
use pipewright::data::DataSource;
use pipewright::id::MicroBatch;
use pipewright::schedule::Schedule;
use pipewright::stages::optimizer::{AdamW, Optimizer, Sgd};
use pipewright::stages::{Shape, Tensor};
use pipewright::{Pipeline, Result, SyncMode};

const STEPS: u64 = 3;

/// A server with this staleness.
fn server(max_staleness: u32) -> SyncMode {
    SyncMode::Server { max_staleness }
}

/// The hash after these steps, with another optimizer than the recipe's.
fn hash_with(recipe: &Recipe, optimizer: impl Optimizer, settles: bool) -> String {
    let builder = recipe.builder(named("1f1b", 2, recipe.micro_batches));
    let mut pipeline = builder.optimizer(optimizer).launch().expect("it starts");
    for _ in 0..STEPS {
        pipeline.step().expect("a step");
        if settles {
            pipeline.weights_hash().expect("it runs");
        }
    }
    pipeline.weights_hash().expect("it runs")
}

#[test]
fn without_staleness_a_server_gives_the_bits_of_reductions() {
    for (micro_batches, tied) in [(8, false), (5, true), (1, false)] {
        let mut recipe = recipe(2, tied, micro_batches);
        let expected = recipe.plain_hash(STEPS);
        recipe.sync = server(0);
        for (replicas, ranks) in [(1, 2), (2, 1), (2, 2), (3, 2), (8, 1)] {
            for sharded in [false, true] {
                (recipe.replicas, recipe.sharded) = (replicas, sharded);
                let hash = recipe.hash(ranks, "1f1b", STEPS);
                assert_eq!(hash, expected, "{replicas} x {ranks}, {micro_batches} micro-batches");
            }
        }
    }
}

/// Nothing is stale after a hash, so a run that asks for one after each step has the weights of reductions,
/// although all of the server was at work.
#[test]
fn a_server_whose_weights_are_asked_for_after_each_step_gives_the_bits_of_reductions() {
    for (mut recipe, shapes) in [
        (recipe(2, false, 8), &[(2, 1), (2, 2), (3, 1), (3, 2), (8, 1)][..]),
        (large(false, 4), &[(2, 1), (3, 1), (2, 2)]),
    ] {
        let expected = recipe.plain_hash(STEPS);
        for &(replicas, ranks) in shapes {
            (recipe.replicas, recipe.sync) = (replicas, server(2));
            let mut pipeline = recipe.pipeline(ranks, "1f1b");
            let mut hash = String::new();
            for step in 0..STEPS {
                let report = pipeline.step().expect("a step");
                assert_eq!((report.loss_step, report.staleness()), (step, 0));
                hash = pipeline.weights_hash().expect("it runs");
            }
            assert_eq!(hash, expected, "{replicas} replicas of {ranks} ranks");
        }
    }
}

#[test]
fn every_schedule_may_have_a_server() {
    let mut recipe = recipe(2, false, 8);
    let expected = recipe.plain_hash(STEPS);
    recipe.replicas = 2;
    for name in Schedule::names() {
        let Ok(schedule) = Schedule::named(name, 2, 8) else {
            continue;
        };
        if schedule.placement().directions() > 1 {
            continue;
        }
        for max_staleness in [0, 1] {
            recipe.sync = server(max_staleness);
            let mut pipeline = recipe.launch(schedule.clone()).expect("it starts");
            let mut hash = String::new();
            for _ in 0..STEPS {
                pipeline.step().expect("a step");
                hash = pipeline.weights_hash().expect("it runs");
            }
            assert_eq!(hash, expected, "{name}, staleness up to {max_staleness}");
        }
    }
}

#[test]
fn every_optimizer_that_updates_parts_may_have_a_server() {
    let mut recipe = recipe(2, false, 6);
    let with = |recipe: &Recipe, momentum| {
        let sgd = Sgd { momentum, weight_decay: 0.1, ..Sgd::default() };
        let adamw = AdamW { weight_decay: 0.1, ..AdamW::default() };
        [hash_with(recipe, sgd, true), hash_with(recipe, adamw, true)]
    };
    for momentum in [0.0, 0.9] {
        (recipe.replicas, recipe.sync) = (1, SyncMode::Reduce);
        let expected = with(&recipe, momentum);
        for max_staleness in [0, 3] {
            (recipe.replicas, recipe.sync) = (2, server(max_staleness));
            assert_eq!(with(&recipe, momentum), expected, "momentum {momentum}");
        }
    }
}

#[test]
fn one_replica_has_nothing_to_share() {
    let mut recipe = recipe(2, true, 4);
    let expected = recipe.plain_hash(STEPS);
    recipe.sync = server(4);
    assert_eq!(recipe.hash(2, "1f1b", STEPS), expected);
}

/// One pipeline in each process.
fn in_processes<T: Send>(
    processes: u32,
    recipe: impl Fn() -> Recipe + Sync,
    call: impl Fn(u32, Pipeline<pipewright::stages::Sequential>) -> T + Sync,
) -> Vec<T> {
    worlds::in_processes(processes, |world| {
        let recipe = recipe();
        let process = world.process();
        let ranks = (processes / recipe.replicas).max(1);
        let builder = recipe.builder(named("1f1b", ranks, recipe.micro_batches));
        call(process, builder.world(world).launch().expect("it starts"))
    })
}

/// Data that takes longer for some micro-batches.
fn slowed(mut recipe: Recipe, micro_batches: std::ops::Range<u32>) -> Recipe {
    recipe.data = Arc::new(stale::Slow { source: Arc::clone(&recipe.data), micro_batches });
    recipe
}
