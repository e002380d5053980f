//! A pipeline that gets other numbers of replicas, of ranks of each, and of shards between two steps: the
//! weights are the weights of the plain loop, bit for bit.

use std::num::NonZeroU32;

use pipewright::groups::GradientGroups;
use pipewright::mesh::Map;
use pipewright::plan::Replicas;
use pipewright::stages::models::ResNet;

use super::divided_models::{gpt_tied, gpt_untied, mixtral, mlp};
use super::frozen::recipe_with_adapters;
use super::recut::uneven;
use super::worlds::in_processes;
use super::*;

/// Replicas, ranks of each, and shards of each of these.
type Sizes = [u32; 3];

/// All shapes of this many ranks, with at most 4 replicas, ranks and shards.
fn shapes(all: u32) -> Vec<Sizes> {
    let sizes = [1, 2, 4];
    let pairs = sizes.iter().flat_map(|&replicas| sizes.iter().map(move |&shards| [replicas, shards]));
    let shape = |[replicas, shards]: [u32; 2]| [replicas, all / (replicas * shards), shards];
    pairs.filter(|[replicas, shards]| all.is_multiple_of(replicas * shards)).map(shape).collect()
}

/// A schedule for this many ranks: another one each time.
fn schedule(ranks: u32, turn: usize, micro_batches: u32) -> Schedule {
    let names: &[&str] = match ranks {
        1 => &["gpipe", "1f1b", "looped-bfs"],
        2 => &["zb-v", "1f1b", "looped-bfs", "zb-h1"],
        _ => &["1f1b", "zb-h1", "gpipe"],
    };
    named(names[turn % names.len()], ranks, micro_batches)
}

/// The replicas of this shape, and the recipe's model cut into their stages.
fn by(recipe: &Recipe, [count, ranks, _]: Sizes, turn: usize) -> (Replicas, Vec<StageBuilder<Sequential>>) {
    let groups = GradientGroups::new(recipe.micro_batches, recipe.gradient_groups);
    let make = |share| Ok::<_, Error>(schedule(ranks, turn, share));
    let replicas = Replicas::new(groups, count, make).expect("there are enough groups");
    let (units, stages) = (recipe.model().names().len(), replicas.largest().stages() as usize);
    let stages = recipe.model().cut(&uneven(units, stages, turn)).expect("they add up to the model's units");
    (replicas, stages)
}

/// Goes on in each of these shapes for a step.
fn follow(recipe: &Recipe, pipeline: &mut Pipeline<Sequential>, shapes: &[Sizes]) -> String {
    for (turn, shape) in shapes.iter().enumerate() {
        let (replicas, stages) = by(recipe, *shape, turn);
        pipeline.reshape(&replicas, shape[2], stages).unwrap_or_else(|error| panic!("{shape:?}: {error}"));
        assert_eq!([pipeline.replicas(), pipeline.schedule().ranks(), pipeline.shards()], *shape);
        train(pipeline, 1);
    }
    pipeline.weights_hash().expect("it runs")
}

/// Each of these, followed by each other one somewhere.
fn each_after_each(all: &[Sizes]) -> Vec<Sizes> {
    let orders = (1..all.len()).flat_map(|stride| (0..=all.len()).map(move |turn| turn * stride % all.len()));
    orders.map(|at| all[at]).collect()
}

/// A recipe whose batch and whose model can be divided by 4.
fn divisible(make: fn(u32) -> Recipe) -> Recipe {
    Recipe { gradient_groups: 4, ..make(4) }
}

#[test]
fn from_any_shape_to_any_other_the_bits_are_those_of_the_plain_loop() {
    for (make, sharded) in
        [(gpt_tied as fn(u32) -> Recipe, false), (gpt_untied, true), (mixtral, false), (mlp, true)]
    {
        let mut recipe = divisible(make);
        // An MLP has few units.
        let has_units = |[_, ranks, _]: &Sizes| {
            schedule(*ranks, 0, 4).stages().max(2 * ranks) as usize <= recipe.model().names().len()
        };
        let order: Vec<Sizes> = each_after_each(&shapes(4).into_iter().filter(has_units).collect::<Vec<_>>());
        assert!(order.len() > 12, "{order:?}");
        let expected = recipe.plain_hash(order.len() as u64);
        [recipe.replicas, _, recipe.shards] = order[0];
        recipe.sharded = sharded;
        let mut pipeline = recipe.launch(schedule(order[0][1], 1, 4)).expect("it starts");
        assert_eq!(follow(&recipe, &mut pipeline, &order), expected, "sharded: {sharded}");
    }
}

#[test]
fn eight_ranks_may_have_three_axes() {
    let mut recipe = divisible(gpt_untied);
    let order = [[2, 2, 2], [4, 1, 2], [1, 4, 2], [2, 1, 4], [1, 2, 4], [4, 2, 1], [2, 4, 1], [2, 2, 2]];
    let expected = recipe.plain_hash(order.len() as u64);
    (recipe.replicas, recipe.shards, recipe.sharded) = (4, 1, true);
    let mut pipeline = recipe.launch(schedule(2, 0, 4)).expect("it starts");
    assert_eq!(follow(&recipe, &mut pipeline, &order), expected);
}

/// Steps without a barrier, ranks that are built again, 16 bits, adapters.
#[test]
fn whatever_else_is_set_the_bits_are_those_of_the_plain_loop() {
    let order = [[2, 2, 1], [1, 2, 2], [4, 1, 1], [1, 1, 4], [2, 1, 2], [1, 4, 1]];
    let mut recipe = divisible(gpt_untied);
    recipe.clip = None;
    let expected = recipe.plain_hash(6);
    let builder = recipe.builder(schedule(4, 0, 4)).barrier(false);
    assert_eq!(follow(&recipe, &mut builder.launch().expect("it starts"), &order), expected);
    let builder = recipe.builder(schedule(4, 0, 4)).restarts(1, NonZeroU32::MIN);
    assert_eq!(follow(&recipe, &mut builder.launch().expect("it starts"), &order), expected);
    let half = Place { device: Device::Cpu, dtype: DType::Bf16 };
    let recipe = Recipe { place: half, ..divisible(gpt_tied) };
    let mut pipeline = recipe.launch(schedule(4, 0, 4)).expect("it starts");
    assert_eq!(follow(&recipe, &mut pipeline, &order), recipe.plain_hash(6));
    let recipe = Recipe { gradient_groups: 4, ..recipe_with_adapters(4) };
    let mut pipeline = recipe.launch(schedule(4, 0, 4)).expect("it starts");
    let order = [[2, 2, 1], [4, 1, 1], [1, 4, 1]];
    assert_eq!(follow(&recipe, &mut pipeline, &order), recipe.plain_hash(3));
}

/// Running means are sums over replicas too.
#[test]
fn networks_of_convolutions_get_more_and_fewer_replicas() {
    let image = [9, 7, 2];
    let net = move || ResNet { image, blocks: vec![1, 1], width: 4, classes: 3, seed: 5 }.model();
    let data = RandomRows { rows: 3, width: image.iter().product(), classes: 3 };
    let recipe = Recipe { gradient_groups: 4, ..recipe_of(net, Arc::new(data), 4) };
    let order = [[2, 2, 1], [4, 1, 1], [1, 4, 1], [4, 1, 1], [2, 2, 1]];
    let mut pipeline = recipe.launch(named("1f1b", 4, 4)).expect("it starts");
    for (turn, [count, ranks, _]) in order.into_iter().enumerate() {
        let make = |share| Schedule::one_f_one_b(ranks, share);
        let replicas = Replicas::new(GradientGroups::new(4, 4), count, make).expect("four groups");
        let units = recipe.model().names().len();
        let stages = recipe.model().cut(&uneven(units, ranks as usize, turn)).expect("all units");
        pipeline.reshape(&replicas, 1, stages).expect("the same model");
        train(&mut pipeline, 1);
    }
    assert_eq!(pipeline.weights_hash().expect("it runs"), recipe.plain_hash(5));
}

/// Replicas of a rank have consecutive numbers.
#[test]
fn ranks_may_be_numbered_by_replicas() {
    let order = [[2, 2, 1], [1, 2, 2], [4, 1, 1], [2, 1, 2], [1, 4, 1]];
    for processes in [1, 2] {
        let all = in_processes(processes, |world| {
            let recipe = divisible(gpt_untied);
            let builder = recipe.builder(schedule(4, 0, 4)).map(Map::Replicas).world(world);
            follow(&recipe, &mut builder.launch().expect("it starts"), &order)
        });
        let expected = divisible(gpt_untied).plain_hash(5);
        assert!(all.iter().all(|hash| *hash == expected), "{processes} processes");
    }
}

#[test]
fn all_that_a_pipeline_does_goes_on_after_it() {
    let recipe = divisible(gpt_untied);
    let folder = tempfile::tempdir().expect("a folder");
    let place = |name: &str| folder.path().join(name);
    let mut pipeline = recipe.launch(schedule(4, 0, 4)).expect("it starts");
    train(&mut pipeline, 2);
    let before = pipeline.weights_hash().expect("it runs");
    let evaluated = pipeline.evaluate(Arc::clone(&recipe.data), 4).expect("it runs").loss;
    pipeline.save_beside(place("before")).expect("it is saved");
    let (replicas, stages) = by(&recipe, [2, 1, 2], 0);
    let recut = pipeline.reshape(&replicas, 2, stages).expect("the same model");
    assert_eq!(recut.moved, pipeline.parameters().len(), "all are on more ranks");
    assert_eq!(pipeline.weights_hash().expect("it runs"), before);
    assert_eq!(pipeline.evaluate(Arc::clone(&recipe.data), 4).expect("it runs").loss, evaluated);
    let (report, _) = pipeline.step_traced().expect("it runs");
    assert_eq!(report.ranks.len(), 4);
    pipeline.save(place("after")).expect("it is saved");
    pipeline.load(place("before")).expect("it is loaded");
    assert_eq!(pipeline.weights_hash().expect("it runs"), before);
    train(&mut pipeline, 1);
    let checkpoint = Checkpoint::open(&place("after")).expect("it is whole");
    assert_eq!(checkpoint.step(), 3);
    let mut other = recipe.launch(schedule(1, 0, 4)).expect("it starts");
    other.load(place("after")).expect("it is loaded");
    assert_eq!(other.weights_hash().expect("it runs"), pipeline.weights_hash().expect("it runs"));
    assert_eq!(pipeline.weights_hash().expect("it runs"), recipe.plain_hash(3));
}

#[test]
fn what_has_no_such_shape_is_refused_and_the_pipeline_goes_on() {
    let mut recipe = Recipe { gradient_groups: 2, ..gpt_untied(2) };
    let expected = recipe.plain_hash(3);
    (recipe.replicas, recipe.sharded) = (2, true);
    let mut pipeline = recipe.launch(schedule(2, 1, 4)).expect("it starts");
    train(&mut pipeline, 1);
    let groups = |groups| GradientGroups::new(4, groups);
    let one = |ranks| Replicas::one(named("1f1b", ranks, 4));
    let cut = |stages| recipe.model().split(stages).expect("enough units");
    let four = Replicas::new(groups(4), 4, |share| Schedule::one_f_one_b(1, share)).expect("four groups");
    let other = Replicas::new(GradientGroups::new(6, 2), 2, |share| Schedule::one_f_one_b(2, share));
    for ((replicas, shards), stages, expected) in [
        ((one(2), 1), cut(2), "1 replica of 2 ranks of 1 shard would be 2 ranks, and the pipeline has 4 in"),
        ((one(4), 0), cut(4), "1 replica of 4 ranks of 0 shards would be 0 ranks, and the pipeline has 4 in"),
        ((four, 1), cut(1), "4 replicas cannot share 2 gradient groups"),
        (
            (other.expect("two groups"), 1),
            cut(2),
            "replica 0 has 3 micro-batches, and its share of the batch",
        ),
        ((one(1), 4), cut(1), "4 shards"),
    ] {
        let error = pipeline.reshape(&replicas, shards, stages).expect_err("no such shape").to_string();
        assert!(error.contains(expected), "{error}");
        assert_eq!([pipeline.replicas(), pipeline.schedule().ranks(), pipeline.shards()], [2, 2, 1]);
        train(&mut pipeline, 0);
    }
    // As it was when a stage could not be built.
    train(&mut pipeline, 2);
    assert_eq!(pipeline.weights_hash().expect("it runs"), expected);
    let mut recipe = super::recipe(2, false, 4);
    (recipe.replicas, recipe.gradient_groups, recipe.sync) = (2, 2, SyncMode::Server { max_staleness: 0 });
    let mut pipeline = recipe.launch(schedule(2, 1, 4)).expect("it starts");
    let error = pipeline.reshape(&one(4), 1, recipe.model().split(4).expect("enough units"));
    assert!(error.expect_err("a server").to_string().contains("parameter server"));
}

#[test]
fn processes_give_each_other_what_they_need() {
    let order = [[2, 2, 1], [1, 2, 2], [4, 1, 1], [1, 1, 4], [2, 1, 2], [1, 4, 1]];
    for (processes, sharded) in [(2, false), (4, true)] {
        let expected = divisible(gpt_tied).plain_hash(6);
        let all = in_processes(processes, |world| {
            let recipe = Recipe { sharded, ..divisible(gpt_tied) };
            let mut pipeline = recipe.builder(schedule(4, 0, 4)).world(world).launch().expect("it starts");
            follow(&recipe, &mut pipeline, &order)
        });
        assert!(all.iter().all(|hash| *hash == expected), "{processes} processes");
    }
}

#[test]
fn processes_that_ask_for_different_shapes_are_refused() {
    let errors = in_processes(2, |world| {
        let recipe = divisible(gpt_untied);
        let shape = [[2, 2, 1], [1, 2, 2]][world.process() as usize];
        let mut pipeline = recipe.builder(schedule(4, 0, 4)).world(world).launch().expect("it starts");
        let (replicas, stages) = by(&recipe, shape, 0);
        pipeline.reshape(&replicas, shape[2], stages).expect_err("they differ").to_string()
    });
    for error in errors {
        assert!(error.contains("the numbers of replicas, ranks and shards"), "{error}");
    }
}
