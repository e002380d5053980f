//! Sums of gradients in 16 bits: the weights do not depend on how many replicas there are.

use pipewright::privacy::Privacy;

use super::divided_models::gpt_untied;
use super::frozen::recipe_with_adapters;
use super::worlds::in_processes;
use super::*;

fn short(recipe: Recipe) -> Recipe {
    Recipe { sums: DType::Bf16, ..recipe }
}

#[test]
fn weights_do_not_depend_on_replicas() {
    for (micro_batches, tied) in [(8, false), (12, true), (7, true), (1, false)] {
        let mut recipe = short(recipe(2, tied, micro_batches));
        let expected = recipe.plain_hash(2);
        assert_ne!(super::recipe(2, tied, micro_batches).plain_hash(2), expected, "nothing was rounded");
        for (replicas, ranks) in [(1, 1), (1, 2), (2, 1), (2, 2), (3, 2), (5, 3), (8, 1)] {
            for sharded in [false, true] {
                (recipe.replicas, recipe.sharded) = (replicas, sharded);
                let hash = recipe.hash(ranks, "1f1b", 2);
                assert_eq!(
                    hash, expected,
                    "{replicas} of {ranks} ranks, {micro_batches}, sharded: {sharded}"
                );
            }
        }
    }
}

#[test]
fn any_number_of_groups_and_every_schedule_has_the_bits_of_the_plain_loop() {
    for groups in [1, 2, 3, 5, 8] {
        let recipe = Recipe { gradient_groups: groups, ..short(recipe(2, true, 7)) };
        recipe.assert_everywhere(&recipe.plain_hash(2));
    }
    let adapters = short(recipe_with_adapters(4));
    adapters.assert_everywhere(&adapters.plain_hash(2));
}

#[test]
fn large_stages_deferred_heads_and_shards_have_the_bits_of_the_plain_loop() {
    let mut wide = short(large(true, 4));
    let expected = wide.plain_hash(2);
    for (replicas, ranks) in [(1, 1), (2, 1), (3, 1), (2, 2), (4, 1)] {
        for sharded in [false, true] {
            (wide.replicas, wide.sharded) = (replicas, sharded);
            assert_eq!(wide.hash(ranks, "zb-h1", 2), expected, "{replicas} of {ranks}, sharded: {sharded}");
        }
    }
    let mut divided = short(gpt_untied(2));
    let expected = divided.plain_hash(2);
    (divided.replicas, divided.shards) = (2, 2);
    assert_eq!(divided.hash(2, "1f1b", 2), expected, "shards");
}

#[test]
fn several_processes_have_the_bits_of_the_plain_loop() {
    for (processes, replicas, sharded) in [(2, 2, false), (4, 4, true), (4, 2, true), (3, 3, false)] {
        let recipe = || Recipe { replicas, sharded, ..short(large(false, 6)) };
        let expected = Recipe { replicas: 1, sharded: false, ..recipe() }.plain_hash(2);
        let all = in_processes(processes, |world| {
            let recipe = recipe();
            let builder = recipe.builder(named("1f1b", 2, recipe.micro_batches));
            trained(&mut builder.world(world).launch().expect("it starts"), 2)
        });
        assert!(all.iter().all(|hash| *hash == expected), "{processes} processes, {replicas} replicas");
    }
}

#[test]
fn what_sums_in_16_bits_cannot_do_is_refused() {
    let server =
        Recipe { replicas: 2, sync: SyncMode::Server { max_staleness: 0 }, ..short(recipe(2, false, 4)) };
    let error = server.launch(named("1f1b", 2, 4)).expect_err("a server");
    has(&error, &["sums cannot be in bf16: a parameter server adds up gradients in f32"]);

    let private = short(recipe(2, false, 4)).builder(named("1f1b", 2, 4));
    let private = private.privacy(Privacy { clip: 1.0, noise: 0.0, seed: 1 });
    let error = private.launch().expect_err("privacy");
    has(&error, &["sums cannot be in bf16: a sum that is rounded may be further from another than privacy"]);

    let norm = || {
        let units = vec![
            LayerSpec::of("fc", 1.0, || Linear::new("fc", [4, 4], Init::Ones, 1)),
            LayerSpec::of("bn", 1.0, || pipewright::stages::layers::BatchNorm::new("bn", 4, 1e-5)),
        ];
        Ok(Model::new(units))
    };
    let data = Arc::new(RandomRows { rows: 3, width: 4, classes: 4 });
    let error = short(recipe_of(norm, data, 2)).launch(named("1f1b", 1, 2)).expect_err("running means");
    has(&error, &["bn", "this running mean would be rounded in each step", "pipeline.sums"]);
}
