//! A model of composed layers trains to the same bits however it is cut: skips over the borders of stages,
//! several tensors on one wire, gates, and weights that are used several times.

use super::*;
use crate::composed::{model_of_blocks, recipe_of_blocks};

const STEPS: u64 = 2;

#[test]
fn weights_are_equal_for_any_number_of_stages() {
    let recipe = recipe_of_blocks(5);
    let plain = recipe.plain_hash(STEPS);
    for stages in 1..=7 {
        for schedule in ["gpipe", "1f1b", "zb-h1"] {
            assert_eq!(recipe.hash(stages, schedule, STEPS), plain, "{stages} stages, {schedule}");
        }
    }
}

/// Gradients of a micro-batch from several uses are added to each other before they are added to the
/// gradients of another gradient group, also where each group is one micro-batch.
#[test]
fn weights_do_not_depend_on_replicas() {
    for micro_batches in [4, 8, 11] {
        let mut recipe = recipe_of_blocks(micro_batches);
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
    let mut recipe = recipe_of_blocks(4);
    recipe.place = Place { dtype: DType::Bf16, ..Place::default() };
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
        let recipe = recipe_of_blocks(micro_batches);
        prop_assert_eq!(recipe.hash_on(schedule.expect("sizes"), STEPS), recipe.plain_hash(STEPS));
    }
}

#[test]
fn adapters_reach_all_linear_layers_inside() {
    let contents = model_of_blocks().and_then(|model| model.contents()).expect("the model can be built");
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
    let lora = Lora { rank: 2, alpha: 4.0, dropout: 0.1, seed: 5 };
    let chosen = move |target: &str| ["repeated.fc", "gate.up"].contains(&target).then_some(lora);
    let with_lora =
        move || model_of_blocks().map(|model| model.with_rules(Rules::default().with_lora(chosen)));
    let mut recipe = Recipe {
        model: Box::new(move || with_lora().expect("the model can be built")),
        ..recipe_of_blocks(4)
    };
    let plain = recipe.plain_hash(STEPS);
    for (replicas, ranks) in [(1, 3), (4, 1), (2, 3)] {
        recipe.replicas = replicas;
        assert_eq!(recipe.hash(ranks, "1f1b", STEPS), plain, "{replicas} replicas of {ranks} ranks");
    }
}
