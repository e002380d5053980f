//! A rank that fails after the model was cut elsewhere, or after another schedule has begun.

use pipewright::groups::GradientGroups;
use pipewright::plan::Replicas;
use pipewright::stages::{Sequential, StageBuilder};

use super::*;

#[test]
fn a_rank_that_fails_after_it_is_built_again_with_its_new_layers() {
    let recipe = recipe(3, true, 4);
    let expected = recipe.plain_hash(4);
    let faults = [Faults::default(), Faults::at(&[(60, How::Fails), (90, How::Panics)])];
    let around = |stages: Vec<StageBuilder<Sequential>>| {
        let stages = stages.into_iter().zip(&faults);
        stages.map(|(stage, faults)| Failing::around(stage, faults.clone())).collect::<Vec<_>>()
    };
    let mut of_rank = faults.iter();
    let make = |stage| Failing::around(stage, of_rank.next().expect("one for each rank").clone());
    let builder = recipe.builder_of(named("1f1b", 2, 4), make);
    let mut pipeline = builder.restarts(3, NonZeroU32::MIN).launch().expect("it starts");
    let mut restarts = 0;
    for counts in [[4, 4], [1, 7], [6, 2], [2, 6]] {
        pipeline.recut(around(recipe.model().cut(&counts).expect("all units"))).expect("the same model");
        restarts += pipeline.step().expect("it goes on").restarts.len();
    }
    assert_eq!(pipeline.weights_hash().expect("it runs"), expected);
    assert_eq!(restarts, 2);
}

#[test]
fn a_rank_that_fails_by_another_schedule_is_built_again_with_its_stages_of_it() {
    let recipe = recipe(3, true, 4);
    let expected = recipe.plain_hash(4);
    // By rank, however many stages it has.
    let faults = [Faults::default(), Faults::at(&[(60, How::Fails), (90, How::Panics)])];
    let stages = |schedule: &Schedule| {
        let stages = recipe.model().split(schedule.stages()).expect("enough units");
        let of_rank = schedule.placement().iter().map(|rank| faults[rank.index()].clone());
        stages.into_iter().zip(of_rank).map(|(stage, faults)| Failing::around(stage, faults)).collect()
    };
    let mut of_rank = faults.iter();
    let make = |stage| Failing::around(stage, of_rank.next().expect("one for each rank").clone());
    let builder = recipe.builder_of(named("1f1b", 2, 4), make);
    let mut pipeline = builder.restarts(3, NonZeroU32::MIN).launch().expect("it starts");
    let mut restarts = 0;
    for name in ["zb-v", "looped-bfs", "gpipe", "dualpipe-v"] {
        let schedule = named(name, 2, 4);
        let stages = stages(&schedule);
        pipeline.reschedule(&Replicas::one(schedule), stages).expect("the same model");
        restarts += pipeline.step().expect("it goes on").restarts.len();
    }
    assert_eq!(pipeline.weights_hash().expect("it runs"), expected);
    assert_eq!(restarts, 2);
}

#[test]
fn a_rank_that_fails_in_another_shape_is_built_again_with_its_part_of_it() {
    let recipe = Recipe { gradient_groups: 4, shard_groups: 2, ..recipe(2, false, 4) };
    let expected = recipe.plain_hash(4);
    // All ranks that build a stage share its faults, and each fault comes true once.
    let faults = Faults::at(&[(60, How::Fails), (90, How::Panics)]);
    let fails = |stage| Failing::around(stage, faults.clone());
    let builder = recipe.builder_of(named("1f1b", 4, 4), fails);
    let mut pipeline = builder.restarts(3, NonZeroU32::MIN).launch().expect("it starts");
    let mut restarts = 0;
    for [count, ranks, shards] in [[2, 2, 1], [1, 2, 2], [4, 1, 1], [2, 1, 2]] {
        let groups = GradientGroups::new(4, 4);
        let make = |share| Schedule::one_f_one_b(ranks, share);
        let replicas = Replicas::new(groups, count, make).expect("four groups");
        let stages = recipe.model().split(ranks).expect("enough units").into_iter().map(fails).collect();
        pipeline.reshape(&replicas, shards, stages).expect("the same model");
        restarts += pipeline.step().expect("it goes on").restarts.len();
    }
    assert_eq!(pipeline.weights_hash().expect("it runs"), expected);
    assert_eq!(restarts, 2);
}
