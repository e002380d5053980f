//! A model that is cut elsewhere between two steps: the weights are those of the plain loop, bit for bit.

use pipewright::Recut;
use pipewright::stages::optimizer::StateFormat;

use super::divided_models::{gpt_untied, mixtral};
use super::frozen::recipe_with_adapters;
use super::worlds::in_processes;
use super::*;

/// The recipe's model, cut into stages with these numbers of units.
fn cut(recipe: &Recipe, counts: &[usize]) -> Vec<StageBuilder<Sequential>> {
    recipe.model().cut(counts).expect("they add up to the model's units")
}

/// A cut of this many units in which each stage has one, and the stage `long` has the others.
pub(crate) fn uneven(units: usize, stages: usize, long: usize) -> Vec<usize> {
    let mut counts = vec![1; stages];
    counts[long % stages] += units - stages;
    counts
}

/// Trains with other cuts after each step: 0 steps before the first.
fn hash(recipe: &Recipe, schedule: Schedule, steps: u64) -> String {
    hash_of(recipe, &mut recipe.launch(schedule).expect("it starts"), steps)
}

fn hash_of(recipe: &Recipe, pipeline: &mut Pipeline<Sequential>, steps: u64) -> String {
    let (units, stages) = (recipe.model().names().len(), pipeline.schedule().stages() as usize);
    for step in 0..steps {
        let counts = uneven(units, stages, step as usize);
        pipeline.recut(cut(recipe, &counts)).expect("the same model");
        train(pipeline, 1);
    }
    pipeline.weights_hash().expect("it runs")
}

#[test]
fn every_schedule_has_the_bits_of_the_plain_loop() {
    for tied in [false, true] {
        let recipe = recipe(3, tied, 4);
        let expected = recipe.plain_hash(3);
        for name in Schedule::names() {
            assert_eq!(hash(&recipe, named(name, 2, 4), 3), expected, "{name}, tied: {tied}");
        }
    }
}

#[test]
fn replicas_shards_servers_and_moments_in_few_bits_have_the_bits_of_the_plain_loop() {
    for make in [gpt_untied as fn(u32) -> Recipe, mixtral] {
        for (groups, state) in [(2, StateFormat::F32), (2, StateFormat::Bf16), (1, StateFormat::Blocks)] {
            let mut recipe = make(groups);
            recipe.optimizer.state = state;
            let expected = recipe.plain_hash(3);
            for (replicas, shards, sharded) in
                [(1, 1, false), (2, 1, false), (2, 1, true), (1, 2, false), (2, 2, true)]
            {
                if shards > groups {
                    continue;
                }
                (recipe.replicas, recipe.shards, recipe.sharded) = (replicas, shards, sharded);
                let what = format!("{state:?}, {replicas} replicas, {shards} shards, sharded: {sharded}");
                assert_eq!(hash(&recipe, named("zb-h1", 2, recipe.micro_batches), 3), expected, "{what}");
            }
        }
    }
    let mut recipe = recipe(2, true, 4);
    let expected = recipe.plain_hash(3);
    (recipe.replicas, recipe.sync) = (2, SyncMode::Server { max_staleness: 0 });
    assert_eq!(hash(&recipe, named("1f1b", 2, 4), 3), expected, "a server");
}

#[test]
fn bf16_and_adapters_have_the_bits_of_the_plain_loop() {
    let half = Place { device: Device::Cpu, dtype: DType::Bf16 };
    for recipe in [Recipe { place: half, ..recipe(2, true, 4) }, recipe_with_adapters(4)] {
        let expected = recipe.plain_hash(3);
        assert_eq!(hash(&recipe, named("1f1b", 3, 4), 3), expected);
    }
}

#[test]
fn all_that_a_pipeline_does_goes_on_after_it() {
    let recipe = recipe(3, true, 4);
    let folder = tempfile::tempdir().expect("a folder");
    let place = |name: &str| folder.path().join(name);
    let mut pipeline = recipe.pipeline(2, "1f1b");
    train(&mut pipeline, 2);
    let before = pipeline.weights_hash().expect("it runs");
    let evaluated = pipeline.evaluate(Arc::clone(&recipe.data), 2).expect("it runs").loss;
    // A checkpoint that is on its way is completed first.
    pipeline.save_beside(place("before")).expect("it is saved");
    let recut = pipeline.recut(cut(&recipe, &[1, 7])).expect("the same model");
    assert!(recut.moved > 0 && recut.given == 0 && recut.seconds > 0.0, "{recut:?}");
    assert!(!pipeline.is_saving());
    assert_eq!(pipeline.weights_hash().expect("it runs"), before);
    assert_eq!(pipeline.evaluate(Arc::clone(&recipe.data), 2).expect("it runs").loss, evaluated);
    pipeline.save(place("after")).expect("it is saved");
    let read = |name: &str, file: &str| std::fs::read(place(name).join(file)).expect("it is there");
    for file in ["model.safetensors", "optimizer.safetensors", "state.json"] {
        assert_eq!(read("after", file), read("before", file), "{file}");
    }
    train(&mut pipeline, 1);
    pipeline.load(place("before")).expect("it is read");
    assert_eq!(trained(&mut pipeline, 2), recipe.plain_hash(4));

    // The same cut again moves nothing.
    let same: Recut = pipeline.recut(cut(&recipe, &[1, 7])).expect("the same model");
    assert_eq!(same.moved, 0);
}

#[test]
fn what_is_no_cut_of_the_model_is_refused_and_the_pipeline_goes_on() {
    let recipe = recipe(3, true, 4);
    let mut pipeline = recipe.pipeline(2, "1f1b");
    train(&mut pipeline, 2);
    let other = |layers: usize, tied: bool, count: u32| {
        let gpt = Gpt { vocab: 17, dim: 16, layers, heads: 2, context: 8, dropout: 0.1, tied, seed: 3 };
        gpt.model().expect("possible").split(count).expect("enough units")
    };
    let unbuildable = || -> Vec<StageBuilder<Sequential>> {
        let fails = LayerSpec::new("fails", 1.0, || Err(pipewright::stages::Error::new("no memory")));
        let model = Model::new(vec![
            LayerSpec::of("ones", 1.0, || Linear::new("ones", [4, 4], Init::Ones, 1)),
            fails,
        ]);
        model.split(2).expect("two units")
    };
    for (stages, expected) in [
        (other(3, true, 3), "the schedule has 2 stages, and the new cut has 3: give as many"),
        (other(4, true, 2), "other parameters than the model that is trained, such as `h.3."),
        (other(2, true, 2), "other parameters than the model that is trained, such as `h.2."),
        (other(3, false, 2), "other parameters than the model that is trained, such as `lm_head.weight`"),
        (unbuildable(), "no memory"),
    ] {
        let error = pipeline.recut(stages).expect_err("another model");
        assert!(error.to_string().contains(expected), "{error}");
    }
    assert_eq!(trained(&mut pipeline, 2), recipe.plain_hash(4));

    let mut stale =
        Recipe { replicas: 2, sync: SyncMode::Server { max_staleness: 1 }, ..super::recipe(2, false, 4) };
    stale.gradient_groups = 2;
    let mut pipeline = stale.pipeline(2, "1f1b");
    let error = pipeline.recut(cut(&stale, &[2, 4])).expect_err("stale");
    has(&error, &["weights may be stale"]);
    let mut places = vec![Place::default(); 2];
    places[1].dtype = DType::Bf16;
    let mixed = super::recipe(2, false, 4);
    let mut pipeline = mixed.builder(named("1f1b", 2, 4)).places(places).launch().expect("it starts");
    let error = pipeline.recut(cut(&mixed, &[2, 4])).expect_err("mixed");
    has(&error, &["ranks compute on CPUs in bf16 and on CPUs in f32: a layer would have other bits"]);
    train(&mut pipeline, 1);
}

#[test]
fn several_processes_give_each_other_their_layers() {
    for (processes, replicas, shards, sharded) in
        [(2, 1, 1, false), (4, 1, 1, false), (2, 2, 1, true), (4, 2, 2, true)]
    {
        let recipe = || {
            let groups = if shards > 1 { 2 } else { 1 };
            Recipe { replicas, shards, sharded, ..gpt_untied(groups) }
        };
        let expected = Recipe { replicas: 1, shards: 1, sharded: false, ..recipe() }.plain_hash(3);
        let ranks = processes / replicas / shards;
        let ranks = if ranks > 1 { ranks } else { 2 };
        let all = in_processes(processes, |world| {
            let recipe = recipe();
            let builder = recipe.builder(named("1f1b", ranks, recipe.micro_batches));
            hash_of(&recipe, &mut builder.world(world).launch().expect("it starts"), 3)
        });
        assert!(all.iter().all(|hash| *hash == expected), "{processes} processes, {replicas} x {shards}");
    }
}

#[test]
fn processes_that_ask_for_different_cuts_are_refused() {
    let errors = in_processes(2, |world| {
        let recipe = recipe(3, false, 4);
        let process = world.process() as usize;
        let builder = recipe.builder(named("1f1b", 2, 4));
        let mut pipeline = builder.world(world).launch().expect("it starts");
        pipeline.recut(cut(&recipe, [&[2, 6], &[3, 5]][process])).expect_err("they differ").to_string()
    });
    for error in errors {
        assert!(error.contains("stage 0"), "{error}");
    }
}
