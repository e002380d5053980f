//! Ranks on GPUs that fail in a step and are built again.

use std::num::NonZeroU32;

use pipewright::PipelineBuilder;

use super::*;
use crate::failing::{Failing, Faults, How};

/// Trains four steps in which each stage fails twice, and returns the hash of the weights.
fn train_failing(recipe: &Recipe, schedule: Schedule, places: Vec<Place>, first: u64) -> String {
    train_failing_with(recipe, schedule, first, |builder| builder.places(places))
}

/// The same with more that a pipeline is told.
pub(crate) fn train_failing_with(
    recipe: &Recipe,
    schedule: Schedule,
    first: u64,
    with: impl FnOnce(PipelineBuilder<Failing>) -> PipelineBuilder<Failing>,
) -> String {
    let faults = [(first, How::Fails), (first + 31, How::Panics)];
    let count = schedule.stages();
    let around = |stage| Failing::around(stage, Faults::at(&faults));
    let builder = with(recipe.builder_of(schedule, around));
    let restarted = builder.restarts(3, NonZeroU32::new(2).expect("not 0"));
    let mut pipeline = restarted.launch().expect("it starts");
    let reports = (0..4).map(|_| pipeline.step().expect("it goes on"));
    let restarts: usize = reports.map(|report| report.restarts.len()).sum();
    // The replicas of a stage count their calls together.
    assert_eq!(restarts, 2 * count as usize);
    pipeline.weights_hash().expect("a hash")
}

#[test]
fn ranks_on_gpus_are_built_again() {
    if emulator::start().is_none() {
        return;
    }
    let other = |dtype| on(Device::Cuda(1), dtype);
    let [f32, bf16] = [DType::F32, DType::Bf16];
    for places in [
        vec![on(GPU, f32)],
        vec![on(GPU, bf16)],
        vec![on(GPU, f32), other(f32)],
        vec![on(GPU, f32), Place::default()],
    ] {
        let recipe = recipe(2, true, 4);
        let (_, expected) = train(&recipe, named("zb-h1", 2, 4), places.clone());
        for first in [0, 9, 20, 33] {
            let hash = train_failing(&recipe, named("zb-h1", 2, 4), places.clone(), first);
            assert_eq!(hash, expected, "{places:?}, first at {first}");
        }
    }
}

#[test]
fn replicas_on_gpus_are_built_again() {
    if emulator::start().is_none() {
        return;
    }
    for sharded in [false, true] {
        let mut recipe = recipe(2, true, 4);
        (recipe.replicas, recipe.sharded) = (2, sharded);
        let gpu = vec![on(GPU, DType::F32)];
        let (_, expected) = train(&recipe, named("zb-h1", 2, 4), gpu.clone());
        assert_eq!(train_failing(&recipe, named("zb-h1", 2, 4), gpu, 5), expected, "sharded: {sharded}");
    }
}

/// Ranks fail before, beside and after copies in both directions.
#[test]
fn ranks_that_offload_are_built_again() {
    if emulator::start().is_none() {
        return;
    }
    let recipe = recipe(2, true, 8);
    let gpu = on(GPU, DType::F32);
    for (name, ranks, places) in
        [("gpipe", 2, vec![gpu]), ("zb-2p", 3, vec![gpu]), ("gpipe", 2, vec![gpu, Place::default()])]
    {
        let kept = Schedule::named(name, ranks, 8).expect("the sizes fit");
        let (_, expected) = train(&recipe, kept.clone(), places.clone());
        let with = offloading(kept);
        assert!(with.offloads(), "{name}");
        for first in (0..48).step_by(13) {
            let hash = train_failing(&recipe, with.clone(), places.clone(), first);
            assert_eq!(hash, expected, "{name} on {places:?}, first at {first}");
        }
    }
}
