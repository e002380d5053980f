//! Short wires: the cut does not choose what is rounded, so the weights are the same as in the plain loop.

use pipewright::stages::WireFormat;

use super::divided_models::{gpt_tied, gpt_untied, llama, mixtral, mlp};
use super::frozen::recipe_with_adapters;
use super::worlds::in_processes;
use super::*;

const SHORT: [WireFormat; 2] = [WireFormat::Bf16, WireFormat::Blocks];

/// The same recipe, of a model with these wires.
fn with_wires(recipe: Recipe, wires: WireFormat) -> Recipe {
    let model = recipe.model;
    Recipe { model: Box::new(move || model().with_wires(wires)), ..recipe }
}

#[test]
fn every_schedule_has_the_bits_of_the_plain_loop() {
    for wires in SHORT {
        for recipe in [recipe(3, true, 4), recipe(3, false, 4), recipe_with_adapters(4)] {
            let recipe = with_wires(recipe, wires);
            recipe.assert_everywhere(&recipe.plain_hash(2));
        }
    }
}

#[test]
fn every_cut_of_every_model_has_the_bits_of_the_plain_loop() {
    for wires in SHORT {
        for make in [gpt_tied as fn(u32) -> Recipe, llama, mixtral, mlp] {
            let recipe = with_wires(make(2), wires);
            let expected = recipe.plain_hash(2);
            assert_ne!(make(2).plain_hash(2), expected, "nothing was rounded");
            let units = recipe.model().names().len() as u32;
            for stages in 1..=units {
                assert_eq!(recipe.hash(stages, "1f1b", 2), expected, "{wires}, {stages} stages");
            }
            let shared = Recipe { replicas: 2, shards: 2, sharded: true, ..recipe };
            assert_eq!(shared.hash(2, "zb-h1", 2), expected, "{wires}, replicas and shards");
        }
    }
}

#[test]
fn several_processes_have_the_bits_and_the_losses_of_one() {
    for wires in SHORT {
        for (processes, ranks, replicas, shards, schedule) in [
            (2, 2, 1, 1, "1f1b"),
            (4, 4, 1, 1, "zb-h1"),
            (2, 2, 1, 1, "interleaved-1f1b"),
            (4, 2, 2, 1, "gpipe"),
            (4, 2, 1, 2, "1f1b"),
        ] {
            let recipe = || with_wires(Recipe { replicas, shards, ..gpt_untied(2) }, wires);
            let alone = Recipe { replicas: 1, shards: 1, ..recipe() };
            let mut pipeline = alone.pipeline(1, "gpipe");
            let weights = trained(&mut pipeline, 2);
            let loss = pipeline.evaluate(Arc::clone(&alone.data), 2).expect("it runs").loss;
            assert_eq!(weights, alone.plain_hash(2));
            let all = in_processes(processes, |world| {
                let recipe = recipe();
                let builder = recipe.builder(named(schedule, ranks, recipe.micro_batches));
                let mut pipeline = builder.world(world).launch().expect("it starts");
                let weights = trained(&mut pipeline, 2);
                (weights, pipeline.evaluate(Arc::clone(&recipe.data), 2).expect("it runs").loss)
            });
            let same = |of: &(String, f64)| *of == (weights.clone(), loss);
            assert!(all.iter().all(same), "{wires}, {processes} processes, {schedule}: {all:?}");
        }
    }
}

#[test]
fn a_number_that_is_not_finite_is_found_behind_a_short_wire() {
    for wires in SHORT {
        let errors = in_processes(2, |world| {
            let mut recipe = with_wires(recipe(2, false, 4), wires);
            recipe.learning_rate = LearningRate::Constant(1e30);
            let builder = recipe.builder(named("1f1b", 2, 4));
            let mut pipeline = builder.world(world).launch().expect("it starts");
            let failed = (0..4).find_map(|_| pipeline.step().err());
            failed.expect("the weights are far too large").to_string()
        });
        assert!(errors.iter().all(|error| error.contains("not finite")), "{wires}: {errors:?}");
    }
}

#[test]
fn what_short_wires_cannot_do_is_refused() {
    let errors = in_processes(2, |world| {
        let wires = [WireFormat::Bf16, WireFormat::Blocks][world.process() as usize];
        let recipe = with_wires(recipe(2, false, 4), wires);
        let refused = recipe.builder(named("1f1b", 2, 4)).world(world).launch();
        refused.expect_err("the formats differ").to_string()
    });
    assert!(errors.iter().all(|error| error.contains("wires in 8bit")), "{errors:?}");

    let half = Place { device: Device::Cpu, dtype: DType::Bf16 };
    let recipe = Recipe { place: half, ..with_wires(super::recipe(2, false, 4), WireFormat::Blocks) };
    let error = recipe.launch(named("1f1b", 2, 4)).expect_err("bf16");
    has(&error, &["wires of 8 bits are for ranks on the CPU that compute in f32"]);

    let model = with_wires(super::recipe(2, false, 4), WireFormat::Bf16).model();
    let units = model.names().len();
    let error = model.cut(&[units, 0]).err().expect("an empty stage");
    has(&error, &["with wires in bf16, each stage has one layer or more"]);
}
