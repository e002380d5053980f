//! Micro-batches of different shapes, in every cut of a model.

use std::collections::BTreeSet;

use pipewright::data::{Mixture, MixtureSource};

use super::divided_models::{gpt_tied, gpt_untied, llama, mixtral};
use super::*;

const HALF: Place = Place { device: Device::Cpu, dtype: DType::Bf16 };

/// The recipe with `least` to 6 rows of 1 to `seq` tokens in a micro-batch.
fn varied(recipe: Recipe, least: usize) -> Recipe {
    let (shape, _) = recipe.data.shapes();
    let vocab = 31;
    let data = Arc::new(Varied(RandomTokens { rows: 6, seq: shape.last(), vocab }, least));
    Recipe { data, ..recipe }
}

#[test]
fn every_schedule_and_way_to_recompute_has_the_bits_of_the_plain_loop() {
    for make in [gpt_tied as fn(u32) -> Recipe, llama, mixtral] {
        let recipe = varied(make(1), 1);
        let shapes = |micro_batch| recipe.data.micro_batch(0, MicroBatch(micro_batch)).expect("data").0;
        assert!((1..4).any(|micro_batch| shapes(micro_batch).dims() != shapes(0).dims()));
        let plain = recipe.plain_hash(2);
        recipe.assert_everywhere(&plain);
    }
}

#[test]
fn replicas_shards_documents_and_bf16_have_the_bits_of_the_plain_loop() {
    for make in [gpt_untied as fn(u32) -> Recipe, llama, mixtral] {
        for (place, is_apart) in [(Place::default(), false), (Place::default(), true), (HALF, true)] {
            let mut recipe = Recipe { place, ..varied(make(4), 4) };
            if is_apart {
                recipe.data = Arc::new(Apart(Arc::clone(&recipe.data)));
            }
            let plain = recipe.plain_hash(3);
            for (replicas, shards, sharded) in [(1, 2, false), (2, 1, true), (2, 4, true)] {
                (recipe.replicas, recipe.shards, recipe.sharded) = (replicas, shards, sharded);
                let hash = recipe.hash(2, "zb-h1", 3);
                let what = format!("{replicas} replicas, {shards} shards, {}, {is_apart}", place.dtype);
                assert_eq!(hash, plain, "{what}");
            }
        }
    }
}

/// The most tokens of a sample.
const LONGEST: usize = 48;

/// The recipe with short and long samples from two sources. The second one keeps documents apart.
fn mixed(recipe: Recipe) -> Recipe {
    let sample = Varied(RandomTokens { rows: 1, seq: LONGEST, vocab: 31 }, 1);
    let source = |share, source| MixtureSource { name: String::new(), share, source };
    let sources =
        vec![source(2.0, Arc::new(sample) as _), source(1.0, Arc::new(Apart(Arc::new(sample))) as _)];
    let mixture = Mixture::new(sources, 3, recipe.micro_batches, 20).expect("a mixture");
    Recipe { data: Arc::new(mixture), ..recipe }
}

#[test]
fn a_mixture_has_the_bits_of_the_plain_loop_in_every_cut() {
    let [mut rows, mut lengths] = [BTreeSet::new(), BTreeSet::new()];
    for tied in [false, true] {
        for place in [Place::default(), HALF] {
            let gpt = Gpt {
                vocab: 31,
                dim: 20,
                layers: 3,
                heads: 5,
                context: LONGEST,
                dropout: 0.1,
                tied,
                seed: 3,
            };
            let recipe = Recipe { shard_groups: 4, ..gpt_recipe(gpt, 3, 4) };
            let mut recipe = Recipe { place, ..mixed(recipe) };
            for micro_batch in (0..recipe.micro_batches).map(MicroBatch) {
                let (input, _) = recipe.data.shapes_of(1, micro_batch);
                rows.insert(input.dims()[0]);
                lengths.insert(input.last());
            }
            let plain = recipe.plain_hash(3);
            for (stages, schedule, replicas, shards, sharded) in [
                (3, "1f1b", 1, 1, false),
                (2, "zb-h1", 1, 2, false),
                (2, "gpipe", 2, 1, true),
                (1, "1f1b", 2, 4, true),
            ] {
                (recipe.replicas, recipe.shards, recipe.sharded) = (replicas, shards, sharded);
                let hash = recipe.hash(stages, schedule, 3);
                assert_eq!(
                    hash, plain,
                    "{stages} stages, {replicas} replicas, {shards} shards, {}",
                    place.dtype
                );
            }
        }
    }
    assert!(rows.last() > Some(&3), "some have more rows than the largest micro-batch: {rows:?}");
    assert!(lengths.first() < Some(&LONGEST), "some have shorter rows: {lengths:?}");
}

#[test]
fn evaluations_and_training_may_have_other_shapes() {
    let recipe = varied(llama(2), 2);
    let of = |stages, shards| {
        let recipe = Recipe { shards, ..varied(llama(2), 2) };
        let mut pipeline = recipe.pipeline(stages, "1f1b");
        let mut losses = Vec::new();
        for count in [3, 7] {
            train(&mut pipeline, 1);
            let report = pipeline.evaluate(Arc::clone(&recipe.data), count).expect("it evaluates");
            losses.push((report.loss, report.weight));
        }
        losses
    };
    let expected = of(1, 1);
    let weight = |count: u32| -> f64 {
        let each = (0..count).map(|micro_batch| recipe.data.shapes_of(0, MicroBatch(micro_batch)).1.count());
        each.sum::<usize>() as f64
    };
    assert_eq!([expected[0].1, expected[1].1], [weight(3), weight(7)], "each token is a target");
    for (stages, shards) in [(3, 1), (1, 2), (2, 2)] {
        assert_eq!(of(stages, shards), expected, "{stages} stages, {shards} shards");
    }
}

#[test]
fn a_micro_batch_with_fewer_rows_than_shards_is_refused_by_name() {
    let recipe = Recipe { shards: 4, ..varied(llama(4), 1) };
    let mut pipeline = recipe.pipeline(1, "1f1b");
    let failed = (0..20).find_map(|_| pipeline.step().err()).expect("some have one row of one token");
    has(&failed.to_string(), &["micro-batch ", "rows cannot be divided among 4 shards: choose fewer shards"]);
}
