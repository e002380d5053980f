//! Networks of convolutions on GPUs.

use pipewright::stages::models::{Cnn, ResNet};

use super::*;

const IMAGE: [usize; 3] = [9, 7, 2];

fn data() -> Arc<RandomRows> {
    Arc::new(RandomRows { rows: 3, width: IMAGE.iter().product(), classes: 3 })
}

/// A ResNet with a shortcut, and a network with biases and max pools.
fn recipes() -> [Recipe; 2] {
    let resnet = || ResNet { image: IMAGE, blocks: vec![1, 1], width: 4, classes: 3, seed: 5 }.model();
    let cnn = || Cnn { image: IMAGE, channels: vec![5, 6], classes: 3, seed: 5 }.model();
    [recipe_of(resnet, data(), 4), recipe_of(cnn, data(), 4)]
}

#[test]
fn networks_of_convolutions_learn_on_a_gpu_what_they_learn_on_the_cpu() {
    if emulator::start().is_none() {
        return;
    }
    for recipe in recipes() {
        for (dtype, within) in [(DType::F32, 1e-4), (DType::Bf16, 5e-2)] {
            let (expected, _) = train(&recipe, named("1f1b", 2, 4), vec![on(Device::Cpu, dtype)]);
            let (got, _) = train(&recipe, named("1f1b", 2, 4), vec![on(GPU, dtype)]);
            assert_close(&got, &expected, within);
        }
    }
}

#[test]
fn convolutions_on_gpus_have_the_same_bits_for_any_cut_and_replicas() {
    if emulator::start().is_none() {
        return;
    }
    for recipe in recipes() {
        for dtype in [DType::F32, DType::Bf16] {
            let place = || vec![on(GPU, dtype)];
            let (_, expected) = train(&recipe, named("1f1b", 1, 4), place());
            for (schedule, ranks) in [("gpipe", 2), ("zb-h1", 3)] {
                let (_, got) = train(&recipe, named(schedule, ranks, 4), place());
                assert_eq!(got, expected, "{schedule}, {ranks} ranks, {dtype}");
            }
        }
    }
    for mut recipe in recipes() {
        recipe.gradient_groups = 4;
        let (_, expected) = train(&recipe, named("1f1b", 2, 4), vec![on(GPU, DType::F32)]);
        recipe.replicas = 2;
        for sharded in [false, true] {
            recipe.sharded = sharded;
            let (_, got) = train(&recipe, named("1f1b", 2, 4), vec![on(GPU, DType::F32)]);
            assert_eq!(got, expected, "2 replicas, sharded: {sharded}");
        }
    }
}

/// Evaluations compute batch norm with its running means.
#[test]
fn running_means_on_a_gpu_are_those_of_the_cpu() {
    if emulator::start().is_none() {
        return;
    }
    let [recipe, _] = recipes();
    let evaluation = |place: Place| {
        let builder = recipe.builder(named("1f1b", 2, 4));
        let mut pipeline = builder.places(vec![place]).launch().expect("it starts");
        (0..3).for_each(|_| drop(pipeline.step().expect("a step")));
        pipeline.evaluate(data(), 3).expect("an evaluation").loss
    };
    let (cpu, gpu) = (evaluation(Place::default()), evaluation(on(GPU, DType::F32)));
    assert!((cpu - gpu).abs() < 1e-4, "{cpu} on the CPU, {gpu} on the GPU");
}
