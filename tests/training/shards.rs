//! Tensor parallelism: the same bits for any number of shards.

use pipewright::stages::layers::Relu;
use pipewright::stages::models::Cnn;
use pipewright::stages::optimizer::StateFormat;
use pipewright::stages::{Division, Kind, Layer, Shard, Sharding};

use pipewright::fabric::World;

use super::divided_models::*;
use super::worlds::in_processes;
use super::*;

const HALF: Place = Place { device: Device::Cpu, dtype: DType::Bf16 };

fn cnn() -> Recipe {
    let cnn = Cnn { image: [5, 5, 1], channels: vec![3], classes: 4, seed: 1 };
    recipe_of(move || cnn.model(), Arc::new(RandomRows { rows: 4, width: 25, classes: 4 }), 4)
}

/// The losses and norms of some steps, and the hash of the weights after them.
fn run(recipe: &Recipe, stages: u32, schedule: &str, steps: u64) -> (Vec<[f64; 2]>, String) {
    let mut pipeline = recipe.pipeline(stages, schedule);
    let step = |_| {
        let report = pipeline.step().expect("the step succeeds");
        [report.loss, report.grad_norm]
    };
    let numbers = (0..steps).map(step).collect();
    (numbers, pipeline.weights_hash().expect("the pipeline runs"))
}

#[test]
fn numbers_are_equal_for_any_shards_stages_and_schedule() {
    let recipes: [fn() -> Recipe; 5] =
        [|| gpt(true, 4), || gpt(false, 4), || llama(4), || mixtral(4), || mlp(4)];
    for place in [Place::default(), HALF] {
        for make in recipes {
            let mut recipe = Recipe { place, ..make() };
            let mut plain = recipe.plain();
            let step = |step| {
                let (loss, norm) = plain.step(recipe.data.as_ref(), step, 4, &mut recipe.loss());
                [loss, norm]
            };
            let expected = ((0..3).map(step).collect::<Vec<_>>(), plain.hash());
            for shards in [1, 2, 4] {
                recipe.shards = shards;
                for (stages, schedule) in [(1, "1f1b"), (2, "gpipe"), (2, "zb-h1"), (3, "1f1b")] {
                    let got = run(&recipe, stages, schedule, 3);
                    assert_eq!(
                        got, expected,
                        "{shards} shards, {stages} stages, {schedule}, {}",
                        place.dtype
                    );
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 80, ..ProptestConfig::default() })]

    #[test]
    fn any_layout_trains_to_the_same_bits(
        (make, place) in (
            prop::sample::select(vec![gpt_tied as fn(u32) -> Recipe, gpt_untied, llama, mixtral, mlp]),
            prop::sample::select(vec![Place::default(), HALF]),
        ),
        (groups, shards) in prop::sample::select(vec![(1, 1), (2, 1), (2, 2), (4, 2), (4, 4)]),
        name in prop::sample::select(Schedule::names().collect::<Vec<_>>()),
        (ranks, more, micro_batches) in (1_u32..4, 0_u32..4, 1_u32..7),
        (replicas, sharded, threads_per_rank) in (1_u32..4, any::<bool>(), 1_usize..3),
        how in prop::sample::select(Recompute::ALL.to_vec()),
        apart in any::<bool>(),
    ) {
        let known = Schedule::chunks(name).expect("it has a name");
        let chunks = (known.start() + more).min(*known.end());
        // The models have six units.
        let ranks = ranks.min(6 / chunks);
        let schedule = Schedule::make(name, ranks, Some(chunks), micro_batches, &Costs::default());
        let schedule = schedule.expect("sizes");
        let mut recipe = Recipe { place, micro_batches, ..make(groups) };
        if apart && recipe.data.shapes().0.kind() == Kind::Ids {
            recipe.data = Arc::new(Apart(recipe.data));
        }
        let plain = recipe.plain_hash(2);
        recipe.replicas = if schedule.placement().directions() > 1 { 1 } else { replicas.min(micro_batches) };
        (recipe.shards, recipe.sharded, recipe.threads_per_rank) = (shards, sharded, threads_per_rank);
        let builder = recipe.builder_of(schedule, |stage| pipewright::stages::recompute(stage, how));
        let mut pipeline = builder.launch().expect("it starts");
        prop_assert_eq!(trained(&mut pipeline, 2), plain);
    }
}

#[test]
fn replicas_a_sharded_optimizer_and_threads_change_nothing() {
    for make in [|| gpt(true, 4), || llama(4), || mixtral(4)] {
        let mut recipe: Recipe = make();
        let plain = recipe.plain_hash(3);
        for (shards, replicas, sharded, threads) in
            [(2, 2, false, 1), (2, 2, true, 1), (4, 3, true, 1), (1, 2, true, 1), (2, 1, false, 2)]
        {
            (recipe.shards, recipe.replicas, recipe.sharded) = (shards, replicas, sharded);
            recipe.threads_per_rank = threads;
            let hash = recipe.hash(2, "1f1b", 3);
            assert_eq!(
                hash, plain,
                "{shards} shards, {replicas} replicas, sharded: {sharded}, {threads} threads"
            );
        }
    }
}

#[test]
fn recomputing_and_every_schedule_give_the_same_bits() {
    let mut recipe = gpt(true, 2);
    let plain = recipe.plain_hash(2);
    recipe.shards = 2;
    recipe.assert_everywhere(&plain);
}

#[test]
fn moments_in_bf16_are_divided_too() {
    let mut recipe = llama(2);
    recipe.optimizer.state = StateFormat::Bf16;
    let plain = recipe.plain_hash(2);
    for (shards, replicas, sharded) in [(2, 1, false), (2, 2, true), (1, 2, true)] {
        (recipe.shards, recipe.replicas, recipe.sharded) = (shards, replicas, sharded);
        assert_eq!(recipe.hash(1, "1f1b", 2), plain, "{shards} shards, {replicas} replicas");
    }
    // What one shard has saved is read by two, and the other way round.
    for (before, after) in [(1, 2), (2, 1)] {
        let folder = tempfile::tempdir().expect("a folder");
        (recipe.shards, recipe.replicas, recipe.sharded) = (before, 1, false);
        let mut first = recipe.builder(named("1f1b", 1, recipe.micro_batches)).launch().expect("it starts");
        first.step().expect("a step");
        first.save(folder.path().join("saved")).expect("there is room");
        recipe.shards = after;
        let mut second = recipe.builder(named("1f1b", 1, recipe.micro_batches)).launch().expect("it starts");
        second.load(folder.path().join("saved")).expect("it is whole");
        second.step().expect("a step");
        assert_eq!(second.weights_hash().expect("a hash"), plain, "{before} shards, then {after}");
    }
}

#[test]
fn adapters_are_divided_too() {
    let adapted = |make: fn() -> Recipe, dropout: f32, place: Place| {
        let recipe = make();
        let lora = Lora { rank: 3, alpha: 6.0, dropout, seed: 9 };
        let rules = Rules::default()
            .with_lora(move |_| Some(lora))
            .with_training(|name| Training { frozen: !Lora::is_adapter(name), ..Training::default() });
        let model = recipe.model;
        Recipe { model: Box::new(move || model().with_rules(rules.clone())), place, ..make() }
    };
    let recipes: [fn() -> Recipe; 2] = [|| gpt(true, 4), || llama(4)];
    for (make, dropout) in recipes.into_iter().flat_map(|make| [(make, 0.0), (make, 0.2)]) {
        for place in [Place::default(), HALF] {
            let mut recipe = adapted(make, dropout, place);
            let plain = recipe.plain_hash(4);
            for (shards, stages) in [(1, 2), (2, 1), (4, 2)] {
                recipe.shards = shards;
                let hash = recipe.hash(stages, "1f1b", 4);
                assert_eq!(hash, plain, "{shards} shards, dropout {dropout}, {}", place.dtype);
            }
        }
    }
}

#[test]
fn evaluations_do_not_depend_on_shards() {
    let scores = |shards| {
        let recipe = Recipe { shards, ..gpt(true, 4) };
        let evaluation = recipe.pipeline(2, "1f1b").evaluate(Arc::clone(&recipe.data), 5).expect("it runs");
        (evaluation.loss, evaluation.weight)
    };
    assert_eq!(scores(1), scores(2));
    assert_eq!(scores(1), scores(4));
}

#[test]
fn checkpoints_do_not_know_of_shards() {
    [|| llama(4), || mixtral(4)].into_iter().for_each(checkpoints_are_equal);
}

fn checkpoints_are_equal(make: fn() -> Recipe) {
    let folder = tempfile::tempdir().expect("a folder");
    let files = |name: &str| {
        ["model.safetensors", "optimizer.safetensors"]
            .map(|file| std::fs::read(folder.path().join(name).join(file)).expect("it is there"))
    };
    let mut expected = None;
    for (shards, stages, replicas, sharded) in [(1, 1, 1, false), (2, 2, 1, false), (4, 1, 2, true)] {
        let recipe = Recipe { shards, replicas, sharded, ..make() };
        let name = format!("{shards}");
        let mut pipeline = recipe.pipeline(stages, "1f1b");
        train(&mut pipeline, 2);
        pipeline.save(folder.path().join(&name)).expect("it is saved");
        let found = files(&name);
        let expected = expected.get_or_insert_with(|| found.clone());
        assert!(found == *expected, "{shards} shards");
    }
    let longer = make().hash(1, "1f1b", 4);
    for (from, shards, stages) in [("1", 4, 2), ("4", 2, 1), ("2", 1, 2)] {
        let recipe = Recipe { shards, ..make() };
        let mut pipeline = recipe.pipeline(stages, "1f1b");
        pipeline.load(folder.path().join(from)).expect("it is read");
        assert_eq!(trained(&mut pipeline, 2), longer, "from {from} to {shards} shards");
    }
}

#[test]
fn shards_in_several_processes_give_the_same_bits() {
    [|| gpt(true, 2), || mixtral(2), || mlp(2)].into_iter().for_each(are_equal_in_processes);
}

fn are_equal_in_processes(make: fn() -> Recipe) {
    let hash = |world: Option<World>, shards: u32, replicas: u32| {
        let recipe = Recipe { shards, replicas, ..make() };
        let builder = recipe.builder(named("1f1b", 2, 4));
        let builder = match world {
            Some(world) => builder.world(world),
            None => builder,
        };
        trained(&mut builder.launch().expect("it starts"), 2)
    };
    let alone = hash(None, 1, 1);
    for (processes, shards, replicas) in [(2, 2, 1), (4, 2, 1), (4, 2, 2)] {
        let hashes = in_processes(processes, |world| hash(Some(world), shards, replicas));
        assert!(hashes.iter().all(|hash| *hash == alone), "{processes} processes: {hashes:?}");
    }
}

#[test]
fn text_does_not_depend_on_shards() {
    for make in [|| gpt(true, 4), || llama(4), || mixtral(4)] {
        let scores = |shards, stages| {
            let recipe: Recipe = Recipe { shards, ..make() };
            let mut pipeline = recipe.pipeline(stages, "1f1b");
            train(&mut pipeline, 1);
            let mut all = pipeline.next_scores(0, &[5, 7, 11]).expect("it writes");
            all.extend(pipeline.next_scores(3, &[13]).expect("it writes"));
            train(&mut pipeline, 1);
            (all, pipeline.weights_hash().expect("it runs"))
        };
        let expected = scores(1, 1);
        let near = |found: &[f32]| {
            // One row is multiplied in another order than several.
            found
                .iter()
                .zip(&expected.0)
                .all(|(one, other)| (one - other).abs() <= 1e-5 * other.abs().max(1.0))
        };
        for (shards, stages) in [(2, 1), (4, 2)] {
            let (found, hash) = scores(shards, stages);
            assert!(found.len() == expected.0.len() && near(&found), "{shards} shards: {found:?}");
            assert_eq!(hash, expected.1, "{shards} shards");
        }
    }
}

/// The layer is named that has the first number that is not finite, in whichever shard it is.
#[test]
fn a_number_that_is_not_finite_is_found_in_any_shard() {
    let found = |shards| {
        let learning_rate = LearningRate::Constant(1e38);
        let recipe = Recipe { shards, learning_rate, clip: None, ..gpt(true, 4) };
        let mut pipeline = recipe.pipeline(2, "1f1b");
        let failed = (0..4).find_map(|_| pipeline.step().err());
        failed.expect("such a step is too large").to_string()
    };
    let expected = found(1);
    has(&expected, &["is not finite", "stage 0"]);
    assert_eq!(found(2), expected);
    assert_eq!(found(4), expected);
}

#[test]
fn a_failing_shard_is_named() {
    let fails = |of: Recipe| Recipe {
        data: changed(of.data, |_, _, _| {
            Err(Error::io("read", "tokens")(std::io::ErrorKind::NotFound.into()))
        }),
        ..of
    };
    for (replicas, name) in [(1, "rank 0, shard "), (2, "replica ")] {
        let recipe = fails(Recipe { replicas, shards: 2, ..gpt(true, 2) });
        let error = recipe.pipeline(1, "1f1b").step().expect_err("there is no data");
        let Error::Action { at, .. } = &error else { panic!("no place: {error}") };
        assert_eq!((at.replica.is_some(), at.shard.is_some()), (replicas > 1, true));
        assert!(error.to_string().starts_with(name), "{error}");
        assert!(error.to_string().starts_with(&format!("{at}, action ")), "{error}");
    }
}

/// The message of a launch that fails.
fn refused(recipe: &Recipe) -> String {
    recipe.launch(named("1f1b", 1, 4)).expect_err("it cannot be divided").to_string()
}

#[test]
fn what_cannot_be_divided_is_refused() {
    let cases: [(Recipe, &[&str]); 6] = [
        (Recipe { shards: 3, ..gpt(true, 4) }, &["3 shards are no power of two", "2 or 4"]),
        (Recipe { shards: 4, ..gpt(true, 2) }, &["4 shards do not divide 2 shard groups", "1, 2 shards"]),
        (Recipe { shards: 8, ..gpt(true, 8) }, &["h.0.attn", "5 units", "at most 4 shards"]),
        (Recipe { shards: 2, ..gpt(true, 1) }, &["2 shards do not divide 1 shard group: choose 1 shard,"]),
        (Recipe { shards: 2, shard_groups: 2, ..cnn() }, &["images", "cannot be divided among shards"]),
        (
            Recipe { shards: 2, replicas: 2, sync: SyncMode::Server { max_staleness: 0 }, ..gpt(true, 2) },
            &["a server has parts of the weights itself"],
        ),
    ];
    for (recipe, parts) in cases {
        has(&refused(&recipe), parts);
    }
}

/// A linear layer of two shards with what `change` makes of it on shard 1.
fn unequal(change: fn(Linear) -> Vec<Box<dyn Layer>>) -> Recipe {
    let unit = move || {
        LayerSpec::divided("fc", 1.0, move |sharding| {
            let linear = Linear::new("fc", [8, 8], Init::Normal(0.5), 1);
            let division = Division::new(sharding, 8, &[1])?;
            let linear = linear.with_divided_outputs(&division);
            Ok(if sharding.shard().index == 1 { change(linear) } else { vec![Box::new(linear)] })
        })
    };
    let data = Arc::new(RandomRows { rows: 4, width: 8, classes: 8 });
    Recipe { shards: 2, shard_groups: 2, ..recipe_of(move || Ok(Model::new(vec![unit()])), data, 4) }
}

#[test]
fn shards_with_other_layers_are_refused() {
    let without_bias = unequal(|linear| vec![Box::new(linear.without_bias())]);
    has(
        &refused(&without_bias),
        &["`fc.bias` of stage 0", "shard 0 and in shard 1", "all shards of a rank must have the same layers"],
    );
    // Without this check, shard 0 would wait for ever, or compute something else.
    let with_relu = unequal(|linear| vec![Box::new(Relu::new("relu")), Box::new(linear)]);
    has(&refused(&with_relu), &["layer 0 of stage 0 is `fc` in shard 0 and `relu` in shard 1"]);
}

/// A layer that is divided by another number of shards than the pipeline has.
#[test]
fn a_part_of_a_tensor_is_refused_where_nobody_has_the_others() {
    let unit = || {
        LayerSpec::new("fc", 1.0, || {
            let sharding = Sharding::new(2, Shard { index: 1, of: 2 })?;
            let division = Division::new(sharding, 8, &[1])?;
            let linear = Linear::new("fc", [8, 8], Init::Normal(0.5), 1).with_divided_outputs(&division);
            Ok(vec![Box::new(linear) as Box<dyn Layer>])
        })
    };
    let data = Arc::new(RandomRows { rows: 4, width: 8, classes: 4 });
    let recipe = recipe_of(move || Ok(Model::new(vec![unit()])), data, 4);
    has(
        &refused(&recipe),
        &["`fc.weight` of layer `fc` in stage 0 is shard 1 of 2, but the pipeline has one shard"],
    );
}

/// The bytes of weights, gradients and optimizer state of a shard of one stage.
fn bytes_of_shard(model: Model, shard: Shard) -> usize {
    let count = model.names().len();
    let stages = model.with_shard_groups(4).expect("a power of two").cut(&[count]).expect("one stage");
    let mut stage = stages[0].build_shard(shard).expect("it is divided");
    let optimizer = AdamW::default();
    let mut numbers = 0;
    stage.visit_parameters(&mut |parameter| {
        parameter.make_state(&optimizer.states(parameter.name(), parameter.dims()));
        let state: usize = parameter.state.iter().map(|tensor| tensor.len()).sum();
        numbers += parameter.value.len() + parameter.grad.len() + state;
    });
    4 * numbers
}

/// Norms, positions and some biases are in every shard: they are small.
#[test]
fn weights_gradients_and_state_of_a_shard_are_a_part_of_all() {
    let gpt = || {
        let [vocab, dim, layers, heads, context] = [1003, 128, 3, 8, 64];
        Gpt { vocab, dim, layers, heads, context, dropout: 0.0, tied: true, seed: 3 }
            .model()
            .expect("the sizes fit")
    };
    let mlp =
        || Mlp { sizes: vec![300, 200, 100, 52], dropout: 0.0, seed: 3 }.model().expect("the sizes fit");
    for make in [&gpt as &dyn Fn() -> Model, &mlp] {
        let whole = bytes_of_shard(make(), Shard::WHOLE) as f64;
        for of in [2, 4] {
            let all = (0..of).map(|index| bytes_of_shard(make(), Shard { index, of }) as f64);
            let largest = all.fold(0.0_f64, f64::max);
            let share = whole / f64::from(of);
            assert!(largest < 1.05 * share, "{of} shards: {largest} bytes, and {share} are a part of all");
        }
    }
}
