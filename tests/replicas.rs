//! Replicas of the pipeline: the weights are the same, bit for bit, however many there are.

mod common;

use common::{Recipe, gpt_recipe, recipe};
use pipewright::schedule::Schedule;
use pipewright::stages::models::Gpt;

const STEPS: u64 = 2;

/// A GPT with a parameter of several pieces, whose sum over replicas has several buckets.
fn large(tied: bool, micro_batches: u32) -> Recipe {
    let gpt = Gpt {
        vocab: 700,
        dim: 144,
        layers: 1,
        heads: 2,
        context: 8,
        dropout: 0.1,
        tied,
        seed: 3,
    };
    gpt_recipe(gpt, 1, micro_batches)
}

fn assert_equal(recipe: &mut Recipe, expected: &str, name: &str, ranks: u32) {
    let hash = recipe.hash(ranks, name, STEPS);
    let Recipe {
        replicas,
        sharded,
        micro_batches,
        ..
    } = recipe;
    assert_eq!(
        hash, expected,
        "{replicas} replicas of {ranks} ranks, {name}, {micro_batches} micro-batches, sharded: {sharded}"
    );
}

#[test]
fn weights_do_not_depend_on_replicas() {
    for (micro_batches, tied) in [(8, false), (12, true), (5, true), (1, false)] {
        let mut recipe = recipe(2, tied, micro_batches);
        let expected = recipe.plain_hash(STEPS);
        for (replicas, ranks) in [(1, 2), (2, 1), (2, 2), (3, 1), (3, 2), (8, 1), (5, 3)] {
            for sharded in [false, true] {
                (recipe.replicas, recipe.sharded) = (replicas, sharded);
                assert_equal(&mut recipe, &expected, "1f1b", ranks);
            }
        }
    }
}

#[test]
fn weights_of_large_stages_do_not_depend_on_replicas() {
    for tied in [false, true] {
        let mut recipe = large(tied, 4);
        let expected = recipe.plain_hash(STEPS);
        for (replicas, ranks) in [(1, 1), (2, 1), (3, 1), (2, 2)] {
            for sharded in [false, true] {
                (recipe.replicas, recipe.sharded) = (replicas, sharded);
                assert_equal(&mut recipe, &expected, "1f1b", ranks);
            }
        }
    }
}

#[test]
fn every_schedule_trains_replicas_alike() {
    let mut recipe = recipe(2, true, 8);
    let expected = recipe.plain_hash(STEPS);
    (recipe.replicas, recipe.sharded) = (2, true);
    for name in Schedule::names() {
        if Schedule::named(name, 2, 8).is_ok_and(|schedule| schedule.placement().directions() == 1) {
            assert_equal(&mut recipe, &expected, name, 2);
        }
    }
}

#[test]
fn any_number_of_gradient_groups_has_its_own_order() {
    let mut recipe = recipe(1, false, 7);
    for groups in 1..9 {
        (recipe.gradient_groups, recipe.replicas) = (groups, 1);
        let expected = recipe.plain_hash(STEPS);
        for replicas in 1..=groups {
            recipe.replicas = replicas;
            assert_equal(&mut recipe, &expected, "gpipe", 1);
        }
    }
}
