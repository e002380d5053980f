//! Every layout gives the bits of the loop by hand.

use std::num::NonZeroU32;

use super::by_hand::ByHand;
use super::failing::{Failing, Faults, How};
use super::mixtral::recipe_of_mixtral;
use super::worlds::in_processes;
use super::*;
use pipewright::data::IGNORED;
use pipewright::plan::{Costs, Replicas};
use pipewright::stages::models::Rules;
use pipewright::stages::{DType, Device, Lora, Place, Recompute, Tensor, Training, recompute};
use proptest::prelude::*;

fn by_hand(recipe: &Recipe) -> String {
    ByHand::new(recipe, PRIVACY).hash(STEPS)
}

#[test]
fn any_stages_and_schedule_with_any_recompute() {
    let recipe = small(4, 6);
    let expected = by_hand(&recipe);
    assert_ne!(expected, recipe.plain_hash(STEPS), "clipping and noise change something");
    for stages in [1, 2, 3, 6] {
        for name in ["gpipe", "1f1b", "zb-h1"] {
            assert_eq!(hash(&recipe, named(name, stages, 6)), expected, "{stages} stages, {name}");
        }
    }
    for name in Schedule::names() {
        let schedule = named(name, 2, 6);
        if schedule.placement().directions() > 1 {
            continue;
        }
        for how in Recompute::ALL {
            let builder = recipe.builder_of(schedule.clone(), |stage| recompute(stage, how));
            let mut pipeline = builder.privacy(PRIVACY).launch().expect("it starts");
            assert_eq!(trained(&mut pipeline, STEPS), expected, "{name}, {how:?}");
        }
    }
}

#[test]
fn any_replicas_also_with_a_sharded_optimizer_or_a_server() {
    let mut recipe = large_untied(9);
    let expected = by_hand(&recipe);
    for replicas in [1, 2, 3, 8] {
        for sharded in [false, true] {
            recipe.replicas = replicas;
            recipe.sharded = sharded;
            assert_eq!(hash(&recipe, named("1f1b", 2, 9)), expected, "{replicas} replicas, {sharded}");
        }
    }
    recipe.sync = pipewright::SyncMode::Server { max_staleness: 0 };
    assert_eq!(hash(&recipe, named("1f1b", 2, 9)), expected, "a server whose weights are never stale");
}

/// A parameter has several pieces, and sums over replicas have several buckets.
fn large_untied(micro_batches: u32) -> Recipe {
    large(false, micro_batches)
}

#[test]
fn any_shards() {
    for (recipe, most) in [(small(2, 5), 4), (recipe_of_mixtral(1, 5), 2)] {
        let mut recipe = Recipe { shard_groups: most, ..recipe };
        let expected = by_hand(&recipe);
        for shards in [1, 2, most] {
            recipe.shards = shards;
            assert_eq!(hash(&recipe, named("1f1b", 2, 5)), expected, "{shards} shards");
        }
        recipe.replicas = 2;
        recipe.sharded = true;
        assert_eq!(hash(&recipe, named("1f1b", 2, 5)), expected, "2 replicas of {most} shards");
    }
}

/// A sample's gradient is clipped over the ranks and shards that have the model at that step.
#[test]
fn any_shape_while_it_trains() {
    let recipe = Recipe { shard_groups: 4, gradient_groups: 4, ..small(2, 5) };
    let expected = by_hand(&recipe);
    let mut pipeline = builder(&recipe, named("1f1b", 4, 5)).launch().expect("it starts");
    for (step, [count, ranks, shards]) in [[2, 2, 1], [1, 1, 4], [2, 1, 2]].into_iter().enumerate() {
        let make = |share| Schedule::one_f_one_b(ranks, share);
        let replicas = Replicas::new(pipeline.groups(), count, make).expect("four groups");
        let stages = recipe.model().split(ranks).expect("enough units");
        pipeline.reshape(&replicas, shards, stages).expect("the same model");
        assert_eq!(pipeline.step().expect("it runs").step, step as u64);
    }
    assert_eq!(pipeline.weights_hash().expect("it runs"), expected);
}

#[test]
fn any_number_of_threads() {
    let mut recipe = large_untied(3);
    let expected = by_hand(&recipe);
    recipe.threads_per_rank = 3;
    assert_eq!(hash(&recipe, named("1f1b", 2, 3)), expected);
}

#[test]
fn bf16() {
    let mut recipe = small(2, 4);
    recipe.place = Place { device: Device::Cpu, dtype: DType::Bf16 };
    let expected = by_hand(&recipe);
    for stages in [1, 3] {
        assert_eq!(hash(&recipe, named("zb-h1", stages, 4)), expected, "{stages} stages");
    }
}

#[test]
fn several_processes() {
    let recipe = || Recipe { replicas: 2, ..small(2, 4) };
    let expected = by_hand(&recipe());
    for found in in_processes(2, |world| {
        let builder = builder(&recipe(), named("1f1b", 2, 4)).world(world);
        trained(&mut builder.launch().expect("it starts"), STEPS)
    }) {
        assert_eq!(found, expected);
    }
}

/// Micro-batches of different lengths, in which some tokens do not count, and one in which none does.
#[test]
fn a_micro_batch_counts_by_the_mean_of_its_own_targets() {
    let mut recipe = small(2, 5);
    recipe.data = changed(Arc::clone(&recipe.data), |data, step, micro_batch| {
        let (input, target) = data.micro_batch(step, micro_batch)?;
        let counted = if micro_batch.0 == 3 { 0 } else { 2 + micro_batch.index() };
        let ids = target.ids().iter().enumerate();
        let ids = ids.map(|(at, id)| if at < counted { *id } else { IGNORED }).collect();
        Ok((input, Tensor::from_ids(target.shape().dims(), ids)?))
    });
    let expected = by_hand(&recipe);
    assert_eq!(hash(&recipe, named("1f1b", 3, 5)), expected);
    recipe.replicas = 3;
    assert_eq!(hash(&recipe, named("1f1b", 2, 5)), expected);
}

/// What people do: only adapters are trained, and all before them is frozen.
#[test]
fn adapters_over_a_frozen_model() {
    let gpt = Gpt { vocab: 17, dim: 16, layers: 3, heads: 2, context: 8, dropout: 0.0, tied: true, seed: 3 };
    let model = move || {
        let lora = Lora { rank: 2, alpha: 4.0, dropout: 0.1, seed: 5 };
        let rules = Rules::default()
            .with_lora(move |name| (name.starts_with("h.1") || name.starts_with("h.2")).then_some(lora))
            .with_training(|name| Training { frozen: !Lora::is_adapter(name), ..Training::default() });
        Ok(gpt.model()?.with_rules(rules))
    };
    let mut recipe = recipe_of(model, Arc::clone(&small(3, 4).data), 4);
    let expected = by_hand(&recipe);
    for stages in [1, 2, 4] {
        assert_eq!(hash(&recipe, named("1f1b", stages, 4)), expected, "{stages} stages");
    }
    recipe.replicas = 2;
    assert_eq!(hash(&recipe, named("zb-v", 2, 4)), expected);
}

#[test]
fn a_rank_that_is_built_again_has_the_same_noise() {
    let recipe = small(2, 3);
    let expected = by_hand(&recipe);
    for (rank, call) in [(0, 4), (0, 17), (1, 9), (1, 26)] {
        let mut faults = [Faults::default(), Faults::default()];
        faults[rank] = Faults::at(&[(call, How::Fails)]);
        let mut ranks = faults.iter();
        let around = |stage| Failing::around(stage, ranks.next().expect("one each").clone());
        let builder = recipe.builder_of(named("1f1b", 2, 3), around);
        let builder = builder.privacy(PRIVACY).restarts(1, NonZeroU32::new(2).expect("not 0"));
        let mut pipeline = builder.launch().expect("it starts");
        let reports: Vec<_> = (0..STEPS).map(|_| pipeline.step().expect("it goes on")).collect();
        assert_eq!(reports.iter().map(|report| report.restarts.len()).sum::<usize>(), 1);
        assert_eq!(pipeline.weights_hash().expect("it runs"), expected, "rank {rank}, call {call}");
    }
}

#[test]
fn a_training_goes_on_from_a_checkpoint_with_the_next_noise() {
    let recipe = small(2, 4);
    let expected = by_hand(&recipe);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("saved");
    let mut pipeline = builder(&recipe, named("1f1b", 2, 4)).launch().expect("it starts");
    train(&mut pipeline, 1);
    pipeline.save(&path).expect("it is saved");
    let mut pipeline = builder(&recipe, named("gpipe", 3, 4)).launch().expect("it starts");
    pipeline.load(&path).expect("it is loaded");
    assert_eq!(trained(&mut pipeline, STEPS - 1), expected);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn any_mesh_and_schedule(
        name in prop::sample::select(Schedule::names().collect::<Vec<_>>()),
        ranks in 1_u32..4,
        more in 0_u32..3,
        micro_batches in 1_u32..9,
        (replicas, groups) in (1_u32..4, 1_u32..6),
        (shards, sharded) in (0_u32..2, any::<bool>()),
    ) {
        let known = Schedule::chunks(name).expect("it has a name");
        let chunks = (known.start() + more).min(*known.end());
        // The model has six units.
        let ranks = ranks.min(6 / chunks).max(1);
        let schedule = Schedule::make(name, ranks, Some(chunks), micro_batches, &Costs::default());
        let schedule = schedule.expect("sizes");
        prop_assume!(schedule.placement().directions() == 1);
        let mut recipe = small(4, micro_batches);
        recipe.gradient_groups = groups.max(replicas);
        recipe.shard_groups = 2;
        let expected = by_hand(&recipe);
        recipe.replicas = replicas;
        recipe.shards = 1 << shards;
        recipe.sharded = sharded;
        prop_assert_eq!(hash(&recipe, schedule), expected);
    }
}
