//! A model of composed layers trains to the same bits however it is cut: skips over the borders of stages,
//! several tensors on one wire, gates, and weights that are used several times.

mod common;

use std::sync::Arc;

use common::{RandomRows, Recipe, recipe_of};
use pipewright::plan::Costs;
use pipewright::schedule::Schedule;
use pipewright::stages::layers::{Block, Dropout, Gelu, GeluForm, LayerNorm, Linear};
use pipewright::stages::models::{LayerSpec, Model, Rules};
use pipewright::stages::{DType, Init, Layer, Lora, Place, Result, chain};
use proptest::prelude::*;

const STEPS: u64 = 2;

fn linear(name: &str, inputs: usize, outputs: usize) -> Linear {
    Linear::new(name, [inputs, outputs], Init::Normal(0.3), 3)
}

fn gelu(name: &str) -> Gelu {
    Gelu::new(name, GeluForm::Tanh)
}

/// The inner part of the net, and the skip beside it, which passes through.
fn beside(name: &str, inner: Vec<Box<dyn Layer>>) -> Block {
    Block::concat(name, [inner, chain![]]).of_columns(&[8, 16])
}

fn layers(unit: &str) -> Result<Vec<Box<dyn Layer>>> {
    let fc = |part: &str, inputs, outputs| linear(&format!("{unit}.{part}"), inputs, outputs);
    let norm = |width| LayerNorm::new(&format!("{unit}.norm"), width);
    Ok(match unit {
        "in" => chain![fc("fc", 12, 16)],
        // From here to "up", a wire has the inner 8 numbers and the 16 of the skip.
        "down" => chain![Block::concat(unit, [chain![norm(16), fc("fc", 16, 8)], chain![]])],
        "repeated" => {
            let dropout = Dropout::new("repeated.dropout", 0.1, 3)?;
            let shared = chain![norm(8), fc("fc", 8, 8), gelu("repeated"), dropout];
            chain![beside(
                unit,
                chain![Block::residual("repeated.r", shared).repeated(3)]
            )]
        }
        "middle" => chain![beside(unit, chain![fc("fc", 8, 8), gelu("middle")])],
        "up" => chain![Block::sum(unit, [chain![fc("fc", 8, 16)], chain![]]).of_columns(&[8, 16])],
        "gate" => {
            let gate = chain![fc("gate", 16, 32), gelu("gate")];
            let gated = Block::product("gate.gated", [gate, chain![fc("up", 16, 32)]]);
            chain![Block::residual(unit, chain![norm(16), gated, fc("down", 32, 16)])]
        }
        _ => chain![fc("fc", 16, 5)],
    })
}

fn model() -> Result<Model> {
    let units = ["in", "down", "repeated", "middle", "up", "gate", "head"];
    let units = units.map(|unit| LayerSpec::new(unit, 1.0, move || layers(unit)));
    Ok(Model::new(units.into()))
}

fn recipe(micro_batches: u32) -> Recipe {
    let data = RandomRows {
        rows: 6,
        width: 12,
        classes: 5,
    };
    recipe_of(model, Arc::new(data), micro_batches)
}

#[test]
fn weights_are_equal_for_any_number_of_stages() {
    let recipe = recipe(5);
    let plain = recipe.plain_hash(STEPS);
    for stages in 1..=7 {
        for schedule in ["gpipe", "1f1b", "zb-h1"] {
            assert_eq!(
                recipe.hash(stages, schedule, STEPS),
                plain,
                "{stages} stages, {schedule}"
            );
        }
    }
}

/// Gradients of a micro-batch from several uses are added to each other before they are added to those of
/// another gradient group, also where each group is one micro-batch.
#[test]
fn weights_do_not_depend_on_replicas() {
    for micro_batches in [4, 8, 11] {
        let mut recipe = recipe(micro_batches);
        let plain = recipe.plain_hash(STEPS);
        for (replicas, ranks) in [(1, 2), (2, 1), (2, 2), (3, 2), (8, 1)] {
            for sharded in [false, true] {
                (recipe.replicas, recipe.sharded) = (replicas, sharded);
                let hash = recipe.hash(ranks, "1f1b", STEPS);
                assert_eq!(
                    hash, plain,
                    "{micro_batches} micro-batches, {replicas} replicas of {ranks} ranks"
                );
            }
        }
    }
}

#[test]
fn weights_are_equal_in_16_bits() {
    let mut recipe = recipe(4);
    recipe.place = Place {
        dtype: DType::Bf16,
        ..Place::default()
    };
    let plain = recipe.plain_hash(STEPS);
    for stages in [2, 3, 7] {
        assert_eq!(recipe.hash(stages, "1f1b", STEPS), plain, "{stages} stages");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn every_schedule_trains_to_the_same_bits(
        name in prop::sample::select(Schedule::names().collect::<Vec<_>>()),
        ranks in 1_u32..6,
        more in 0_u32..4,
        micro_batches in 1_u32..9,
    ) {
        let known = Schedule::chunks(name).expect("it has a name");
        let chunks = (known.start() + more).min(*known.end()).min(7);
        let ranks = ranks.min(7 / chunks);
        let schedule = Schedule::make(name, ranks, Some(chunks), micro_batches, &Costs::default());
        let recipe = recipe(micro_batches);
        prop_assert_eq!(recipe.hash_on(schedule.expect("sizes"), STEPS), recipe.plain_hash(STEPS));
    }
}

#[test]
fn adapters_reach_all_linear_layers_inside() {
    let contents = model()
        .and_then(|model| model.contents())
        .expect("the model can be built");
    let targets: Vec<&String> = contents.iter().flat_map(|unit| &unit.targets).collect();
    let expected = [
        "in.fc",
        "down.fc",
        "repeated.fc",
        "middle.fc",
        "up.fc",
        "gate.gate",
        "gate.up",
        "gate.down",
        "head.fc",
    ];
    assert_eq!(targets, expected);
}

#[test]
fn adapters_of_a_repeated_block_train_to_the_same_bits() {
    let lora = Lora {
        rank: 2,
        alpha: 4.0,
        dropout: 0.1,
        seed: 5,
    };
    let chosen = move |target: &str| ["repeated.fc", "gate.up"].contains(&target).then_some(lora);
    let with_lora = move || model().map(|model| model.with_rules(Rules::default().with_lora(chosen)));
    let mut recipe = Recipe {
        model: Box::new(move || with_lora().expect("the model can be built")),
        ..recipe(4)
    };
    let plain = recipe.plain_hash(STEPS);
    for (replicas, ranks) in [(1, 3), (4, 1), (2, 3)] {
        recipe.replicas = replicas;
        assert_eq!(
            recipe.hash(ranks, "1f1b", STEPS),
            plain,
            "{replicas} replicas of {ranks} ranks"
        );
    }
}
