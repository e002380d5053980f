//! A pipeline that goes on by another schedule between two steps: the weights are those of the plain loop,
//! bit for bit.

use pipewright::groups::GradientGroups;
use pipewright::plan::Replicas;

use super::divided_models::{gpt_untied, mixtral};
use super::frozen::recipe_with_adapters;
use super::recut::uneven;
use super::worlds::in_processes;
use super::*;

/// The names of the schedules that are trained.
fn names() -> impl Iterator<Item = &'static str> {
    Schedule::names().filter(|name| named(name, 2, 4).placement().directions() == 1)
}

/// The recipe's replicas by a schedule, and its model cut into the schedule's stages: each has one unit, and
/// the stage `long` has the others.
fn by(recipe: &Recipe, schedule: &Schedule, long: usize) -> (Replicas, Vec<StageBuilder<Sequential>>) {
    let groups = GradientGroups::new(recipe.micro_batches, recipe.gradient_groups);
    let part = |share| Ok::<_, Error>(schedule.part(0..share));
    let replicas = Replicas::new(groups, recipe.replicas, part).expect("there are enough groups");
    let (units, stages) = (recipe.model().names().len(), schedule.stages() as usize);
    let cut = recipe.model().cut(&uneven(units, stages, long));
    (replicas, cut.expect("they add up to the model's units"))
}

/// Goes on by each of these schedules for a step.
fn follow(recipe: &Recipe, pipeline: &mut Pipeline<Sequential>, schedules: &[Schedule]) -> String {
    for (step, schedule) in schedules.iter().enumerate() {
        let (replicas, stages) = by(recipe, schedule, step);
        pipeline.reschedule(&replicas, stages).expect("the same model");
        assert_eq!(pipeline.schedule().name(), schedule.name());
        train(pipeline, 1);
    }
    pipeline.weights_hash().expect("it runs")
}

#[test]
fn from_any_schedule_to_any_other_the_bits_are_those_of_the_plain_loop() {
    for tied in [false, true] {
        let recipe = recipe(3, tied, 4);
        let all: Vec<Schedule> = names().map(|name| named(name, 2, 4)).collect();
        let expected = recipe.plain_hash(all.len() as u64);
        // Each one is followed by each other one in one of these orders.
        for stride in (1..all.len()).filter(|stride| !all.len().is_multiple_of(*stride) || *stride == 1) {
            let order: Vec<Schedule> =
                (0..all.len()).map(|at| all[(at * stride + stride) % all.len()].clone()).collect();
            let mut pipeline = recipe.launch(all[0].clone()).expect("it starts");
            assert_eq!(follow(&recipe, &mut pipeline, &order), expected, "stride {stride}, tied: {tied}");
        }
    }
}

#[test]
fn the_number_of_stages_of_a_rank_may_change() {
    let recipe = recipe(4, false, 6);
    let made = |name, chunks| Schedule::make(name, 2, Some(chunks), 6, &Costs::default()).expect("it fits");
    let all = [
        made("interleaved-1f1b", 3),
        made("1f1b", 1),
        made("looped-bfs", 4),
        made("zb-v", 2),
        made("interleaved-zb", 2),
        made("gpipe", 1),
    ];
    let mut pipeline = recipe.launch(named("zb-h1", 2, 6)).expect("it starts");
    assert_eq!(follow(&recipe, &mut pipeline, &all), recipe.plain_hash(6));
}

/// Replicas with unequal shares, a sharded optimizer whose stages lend each other gradients by some schedules
/// only, shards, a server, steps without a barrier.
#[test]
fn whatever_else_is_set_the_bits_are_those_of_the_plain_loop() {
    let schedules = |micro_batches| {
        ["zb-v", "looped-bfs", "1f1b", "interleaved-zb"].map(|name| named(name, 2, micro_batches))
    };
    for (make, replicas, shards, sharded, barrier) in [
        (gpt_untied as fn(u32) -> Recipe, 2, 1, false, true),
        (gpt_untied, 3, 1, true, true),
        (gpt_untied, 1, 2, false, true),
        (gpt_untied, 2, 2, true, false),
        (mixtral, 2, 1, true, false),
    ] {
        let mut recipe = make(2);
        recipe.clip = recipe.clip.filter(|_| barrier);
        recipe.gradient_groups = 4;
        let expected = recipe.plain_hash(4);
        (recipe.replicas, recipe.shards, recipe.sharded) = (replicas, shards, sharded);
        let builder = recipe.builder(named("gpipe", 2, recipe.micro_batches)).barrier(barrier);
        let mut pipeline = builder.launch().expect("it starts");
        let got = follow(&recipe, &mut pipeline, &schedules(recipe.micro_batches));
        assert_eq!(got, expected, "{replicas} replicas, {shards} shards, sharded: {sharded}");
    }
    let mut recipe = recipe(3, true, 4);
    let expected = recipe.plain_hash(4);
    (recipe.replicas, recipe.sync) = (2, SyncMode::Server { max_staleness: 0 });
    let mut pipeline = recipe.launch(named("gpipe", 2, 4)).expect("it starts");
    assert_eq!(follow(&recipe, &mut pipeline, &schedules(4)), expected, "a server");
    let half = Place { device: Device::Cpu, dtype: DType::Bf16 };
    for recipe in [Recipe { place: half, ..super::recipe(3, true, 4) }, recipe_with_adapters(4)] {
        let mut pipeline = recipe.launch(named("gpipe", 2, 4)).expect("it starts");
        assert_eq!(follow(&recipe, &mut pipeline, &schedules(4)), recipe.plain_hash(4));
    }
}

#[test]
fn what_is_recomputed_may_change() {
    let recipe = recipe(3, true, 4);
    let stages = |how| {
        let stages = recipe.model().cut(&[3, 5]).expect("all units");
        stages.into_iter().map(|stage| pipewright::stages::recompute(stage, how)).collect::<Vec<_>>()
    };
    let make = |stage| pipewright::stages::recompute(stage, Recompute::None);
    let mut pipeline = recipe.builder_of(named("1f1b", 2, 4), make).launch().expect("it starts");
    for how in Recompute::ALL {
        pipeline.recut(stages(how)).expect("the same model");
        train(&mut pipeline, 1);
    }
    assert_eq!(pipeline.weights_hash().expect("it runs"), recipe.plain_hash(4));
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
    let text = pipeline.next_scores(0, &[1, 2, 3]).expect("it runs");
    pipeline.save_beside(place("before")).expect("it is saved");
    // The first and the last stage are on one rank.
    let (replicas, stages) = by(&recipe, &named("zb-v", 2, 4), 1);
    pipeline.reschedule(&replicas, stages).expect("the same model");
    assert!(!pipeline.is_saving());
    assert_eq!(pipeline.weights_hash().expect("it runs"), before);
    assert_eq!(pipeline.evaluate(Arc::clone(&recipe.data), 2).expect("it runs").loss, evaluated);
    assert_eq!(pipeline.next_scores(0, &[1, 2, 3]).expect("it runs"), text);
    pipeline.save(place("after")).expect("it is saved");
    let read = |name: &str, file: &str| std::fs::read(place(name).join(file)).expect("it is there");
    for file in ["model.safetensors", "optimizer.safetensors", "state.json"] {
        assert_eq!(read("after", file), read("before", file), "{file}");
    }
    let (_, timeline) = pipeline.step_traced().expect("it runs");
    assert_eq!(timeline.ranks.len(), 2);
    pipeline.load(place("before")).expect("it is read");
    assert_eq!(trained(&mut pipeline, 2), recipe.plain_hash(4));
}

#[test]
fn schedules_that_do_not_fit_are_refused_and_the_pipeline_goes_on() {
    let mut recipe = recipe(3, false, 4);
    recipe.replicas = 2;
    let mut pipeline = recipe.pipeline(2, "1f1b");
    train(&mut pipeline, 2);
    let cut = |stages: u32| recipe.model().split(stages).expect("enough units");
    let two = |name: &str, ranks, micro_batches| {
        let whole = named(name, ranks, micro_batches);
        let part = |share| Ok::<_, Error>(whole.part(0..share));
        Replicas::new(GradientGroups::new(micro_batches, 2), 2, part).expect("two groups")
    };
    let fails: Vec<StageBuilder<Sequential>> = {
        let fails = LayerSpec::new("fails", 1.0, || Err(pipewright::stages::Error::new("no memory")));
        let ones = |name| LayerSpec::of(name, 1.0, move || Linear::new(name, [4, 4], Init::Ones, 1));
        Model::new(vec![ones("a"), ones("b"), ones("c"), fails]).split(4).expect("four units")
    };
    for (replicas, stages, expected) in [
        (
            Replicas::one(named("1f1b", 2, 4)),
            cut(2),
            "1 replica of 2 ranks of 1 shard would be 2 ranks, and the pipeline has 4 in",
        ),
        (
            two("1f1b", 3, 4),
            cut(3),
            "2 replicas of 3 ranks of 1 shard would be 6 ranks, and the pipeline has 4 in all",
        ),
        (two("1f1b", 2, 6), cut(2), "replica 0 has 3 micro-batches, and its share of the batch is 2"),
        (two("zb-v", 2, 4), cut(2), "the schedule has 4 stages, and the new cut has 2: give as many"),
        (two("zb-v", 2, 4), fails, "no memory"),
    ] {
        let error = pipeline.reschedule(&replicas, stages).expect_err("it does not fit").to_string();
        assert!(error.contains(expected), "{error}");
        assert_eq!(pipeline.schedule().name(), "1f1b");
    }
    assert_eq!(trained(&mut pipeline, 2), recipe.plain_hash(4));
}

#[test]
fn processes_give_each_other_what_the_placement_moves() {
    for (processes, ranks, replicas, sharded) in [(2, 2, 1, false), (4, 4, 1, false), (4, 2, 2, true)] {
        let recipe = || Recipe { replicas, sharded, ..super::recipe(7, true, 4) };
        let expected = Recipe { replicas: 1, sharded: false, ..recipe() }.plain_hash(5);
        let all = in_processes(processes, |world| {
            let recipe = recipe();
            let builder = recipe.builder(named("1f1b", ranks, 4)).world(world);
            let mut pipeline = builder.launch().expect("it starts");
            let schedules =
                ["zb-v", "looped-bfs", "v-half", "gpipe", "dualpipe-v"].map(|name| named(name, ranks, 4));
            follow(&recipe, &mut pipeline, &schedules)
        });
        assert!(all.iter().all(|hash| *hash == expected), "{processes} processes, {replicas} replicas");
    }
}

#[test]
fn processes_that_ask_for_different_schedules_are_refused() {
    let errors = in_processes(2, |world| {
        let recipe = recipe(3, false, 4);
        let process = world.process() as usize;
        let mut pipeline = recipe.builder(named("1f1b", 2, 4)).world(world).launch().expect("it starts");
        let (replicas, stages) = by(&recipe, &named(["gpipe", "zb-h1"][process], 2, 4), 0);
        pipeline.reschedule(&replicas, stages).expect_err("they differ").to_string()
    });
    for error in errors {
        assert!(error.contains("the order of rank 0's actions"), "{error}");
    }
}
