//! Tensor parallelism on GPUs: the same bits for any number of shards, and about the CPU's numbers.

use super::training::{GPU, assert_close, on};
use super::*;
use crate::divided_models::*;
use crate::worlds::in_processes;
use pipewright::PipelineBuilder;
use pipewright::stages::models::{Mlp, Rules};
use pipewright::stages::{Lora, Recompute, Sequential, Training};

/// The reports of two steps, the hash of the weights, and the scores of a text after it.
pub(crate) fn run(builder: PipelineBuilder<Sequential>) -> (Vec<StepReport>, String) {
    let mut pipeline = builder.launch().expect("it starts");
    let reports = (0..2).map(|_| pipeline.step().expect("a step")).collect();
    (reports, pipeline.weights_hash().expect("a hash"))
}

fn run_on(recipe: &Recipe, (schedule, ranks): (&str, u32), places: Vec<Place>) -> (Vec<StepReport>, String) {
    run(recipe.builder(named(schedule, ranks, 4)).places(places))
}

/// Compares shards of a recipe with one shard on a GPU, and that one with the CPU.
fn same_bits(name: &str, mut recipe: Recipe, layouts: &[(u32, &str, u32)]) {
    for (dtype, within) in [(DType::F32, 1e-4), (DType::Bf16, 5e-2)] {
        recipe.shards = 1;
        let (on_cpu, _) = run_on(&recipe, ("1f1b", 1), vec![]);
        let (reports, expected) = run_on(&recipe, ("1f1b", 1), vec![on(GPU, dtype)]);
        assert_close(&reports, &on_cpu, within);
        for &(shards, schedule, ranks) in layouts {
            recipe.shards = shards;
            let (got, hash) = run_on(&recipe, (schedule, ranks), vec![on(GPU, dtype)]);
            assert_close(&got, &reports, f64::MIN_POSITIVE);
            assert_eq!(hash, expected, "{name}: {shards} shards, {ranks} ranks, {dtype}");
        }
    }
}

#[test]
fn a_gpu_gives_the_same_bits_for_any_shards() {
    if emulator::start().is_none() {
        return;
    }
    same_bits("gpt_tied(4)", gpt_tied(4), &[(2, "zb-h1", 2), (4, "gpipe", 1)]);
    same_bits("gpt_untied(2)", gpt_untied(2), &[(2, "1f1b", 1)]);
    same_bits("llama(4)", llama(4), &[(2, "1f1b", 1), (4, "1f1b", 2)]);
    same_bits("mixtral(4)", mixtral(4), &[(2, "1f1b", 2), (4, "1f1b", 1)]);
    same_bits("mlp(4)", mlp(4), &[(2, "1f1b", 1), (4, "gpipe", 2)]);
}

/// Scores of more rows than a GPU has in memory at once.
#[test]
fn a_gpu_gives_the_same_bits_where_scores_come_some_rows_at_a_time() {
    if emulator::start().is_none() {
        return;
    }
    let mlp = Mlp { sizes: vec![5, 4, 9], dropout: 0.2, seed: 5 };
    let data = Arc::new(RandomRows { rows: 2100, width: 5, classes: 9 });
    let recipe = Recipe { shard_groups: 2, ..recipe_of(move || mlp.model(), data, 4) };
    same_bits("mlp", recipe, &[(1, "gpipe", 2), (2, "zb-h1", 2)]);
}

#[test]
fn documents_are_kept_apart_on_gpus_in_every_cut() {
    if emulator::start().is_none() {
        return;
    }
    let apart = |recipe: Recipe| {
        let data = Arc::new(Apart(Arc::clone(&recipe.data)));
        Recipe { data, ..recipe }
    };
    same_bits("gpt, apart", apart(gpt_tied(2)), &[(1, "gpipe", 2), (2, "zb-h1", 2)]);
    same_bits("llama, apart", apart(llama(2)), &[(1, "1f1b", 3), (2, "1f1b", 1)]);
    let mut recipe = apart(gpt_tied(1));
    let (_, expected) = run_on(&recipe, ("1f1b", 1), vec![on(GPU, DType::Bf16)]);
    recipe.replicas = 2;
    let make = |stage| pipewright::stages::recompute(stage, Recompute::Full);
    let builder = recipe.builder_of(named("1f1b", 2, 4), make).places(vec![on(GPU, DType::Bf16)]);
    assert_eq!(trained(&mut builder.launch().expect("it starts"), 2), expected);
}

#[test]
fn adapters_on_gpus_are_divided_too() {
    if emulator::start().is_none() {
        return;
    }
    let recipes: [fn() -> Recipe; 2] = [|| gpt_tied(2), || llama(2)];
    for make in recipes {
        same_bits("adapted", adapted(make), &[(2, "1f1b", 1)]);
    }
}

/// The same recipe with adapters of all layers.
fn adapted(make: fn() -> Recipe) -> Recipe {
    let lora = Lora { rank: 3, alpha: 6.0, dropout: 0.2, seed: 9 };
    let rules = Rules::default()
        .with_lora(move |_| Some(lora))
        .with_training(|name| Training { frozen: !Lora::is_adapter(name), ..Training::default() });
    let model = make().model;
    Recipe { model: Box::new(move || model().with_rules(rules.clone())), ..make() }
}

#[test]
fn shards_go_with_replicas_a_sharded_optimizer_and_recomputing() {
    if emulator::start().is_none() {
        return;
    }
    for dtype in [DType::F32, DType::Bf16] {
        let mut recipe = gpt_tied(2);
        let (_, expected) = run_on(&recipe, ("1f1b", 1), vec![on(GPU, dtype)]);
        (recipe.shards, recipe.replicas, recipe.sharded) = (2, 2, true);
        for how in [Recompute::Selective, Recompute::Full] {
            let make = |stage| pipewright::stages::recompute(stage, how);
            let builder = recipe.builder_of(named("1f1b", 2, 4), make);
            let mut pipeline = builder.places(vec![on(GPU, dtype)]).launch().expect("it starts");
            (0..2).for_each(|_| drop(pipeline.step().expect("a step")));
            assert_eq!(pipeline.weights_hash().expect("a hash"), expected, "{how:?}, {dtype}");
        }
    }
}

#[test]
fn shards_of_a_rank_are_on_several_gpus_but_not_on_gpu_and_cpu() {
    if emulator::start().is_none() {
        return;
    }
    let mut recipe = llama(2);
    let (_, expected) = run_on(&recipe, ("1f1b", 1), vec![on(GPU, DType::F32)]);
    recipe.shards = 2;
    let other = devices::probe().gpus.expect("there is one").len() as u32 - 1;
    let places = [0, other].map(|index| on(Device::Cuda(index), DType::F32));
    let (_, got) = run_on(&recipe, ("1f1b", 1), places.to_vec());
    assert_eq!(got, expected);
    let refused = |other| {
        let builder = recipe.builder(named("1f1b", 1, 4)).places(vec![places[0], other]);
        builder.launch().expect_err("two ways to compute").to_string()
    };
    has(
        &refused(Place::default()),
        &["rank 0, shard 0 is on cuda:0 in f32, and rank 0, shard 1 on cpu in f32", "all on GPUs"],
    );
    has(&refused(on(GPU, DType::Bf16)), &["rank 0, shard 1 on cuda:0 in bf16", "in one number format"]);
}

#[test]
fn checkpoints_and_text_of_gpus_do_not_know_of_shards() {
    if emulator::start().is_none() {
        return;
    }
    let recipes: [fn() -> Recipe; 2] = [|| llama(2), || adapted(|| gpt_tied(2))];
    for make in recipes {
        let folder = tempfile::tempdir().expect("a folder");
        let [one, two] = [(1, 1), (2, 2)].map(|(shards, ranks)| {
            let recipe = Recipe { shards, ..make() };
            let builder = recipe.builder(named("1f1b", ranks, 4)).places(vec![on(GPU, DType::Bf16)]);
            let mut pipeline = builder.launch().expect("it starts");
            pipeline.step().expect("a step");
            let saved = folder.path().join(shards.to_string());
            pipeline.save(&saved).expect("it is saved");
            let files = ["model.safetensors", "optimizer.safetensors"];
            let files = files.map(|file| std::fs::read(saved.join(file)).expect("it is there"));
            (files, pipeline.next_scores(0, &[5, 7, 11]).expect("it writes"))
        });
        assert!(one.0 == two.0, "the files");
        assert_eq!(one.1, two.1, "the scores of a text");
    }
}

#[test]
fn shards_on_gpus_of_several_processes_give_the_same_bits() {
    if emulator::start().is_none() {
        return;
    }
    let (_, expected) = run_on(&llama(2), ("1f1b", 1), vec![on(GPU, DType::Bf16)]);
    let gpus = devices::probe().gpus.expect("there is one").len() as u32;
    let places = |ranks| (0..2 * ranks).map(|rank| on(Device::Cuda(rank % gpus), DType::Bf16)).collect();
    // With one rank, the two shards are in two processes.
    for ranks in [1, 2] {
        let hashes = in_processes(2, |world| {
            let recipe = Recipe { shards: 2, ..llama(2) };
            run(recipe.builder(named("1f1b", ranks, 4)).places(places(ranks)).world(world)).1
        });
        assert!(hashes.iter().all(|hash| *hash == expected), "{ranks} ranks: {hashes:?}");
    }
}
