//! The errors for what cannot run on a GPU: what, where, and what would work.

use pipewright::PipelineBuilder;
use pipewright::stages::optimizer::{Optimizer, StateTensor, Update};
use pipewright::stages::{Parameter, Result as StageResult, Sequential, Together};

use super::*;
use crate::plain::{PlainLayer, PlainLoss};

fn refusal(recipe: &Recipe, places: Vec<Place>) -> String {
    let builder = recipe.builder(named("1f1b", 2, 4));
    builder.places(places).launch().expect_err("refused").to_string()
}

#[test]
fn a_device_that_is_not_there_is_named_with_those_that_are() {
    if emulator::start().is_none() {
        return;
    }
    let there = on(GPU, DType::F32);
    let told = refusal(&recipe(2, false, 4), vec![there, on(Device::Cuda(99), DType::F32)]);
    has(&told, &["stage 1 (rank 1)"]);
    has(&told, &["there is no cuda:99: CUDA sees cuda:0"]);
}

#[test]
fn places_are_one_for_each_rank_or_one_for_all() {
    let told = refusal(&recipe(2, false, 4), vec![Place::default(); 3]);
    assert_eq!(told, "3 places for 2 ranks: give one for each, or one for all");
}

#[test]
fn out_of_memory_tells_where_how_much_and_what_would_fit() {
    if !matches!(emulator::start(), emulator::Cuda::Emulated(_)) {
        return; // A GPU has more memory than a test wants to fill.
    }
    let data = RandomRows { rows: 70_000, width: 4, classes: 2 };
    let model = || Mlp { sizes: vec![4, 4096, 2], dropout: 0.0, seed: 1 }.model();
    let recipe = recipe_of(model, Arc::new(data), 4);
    let builder = recipe.builder(named("1f1b", 1, 4));
    let mut pipeline = builder.places(vec![on(GPU, DType::F32)]).launch().expect("it starts");
    let told = pipeline.step().expect_err("there is 1 GiB").to_string();
    assert!(told.starts_with("rank 0, action 0 (0F0): "), "{told}");
    has(&told, &["out of memory on cuda:0: 1.07 GiB wanted"]);
    has(&told, &["free of 1.00 GiB"]);
    has(&told, &["pipeline.micro_batch_size"]);
}

/// An optimizer that does not support GPUs.
#[derive(Debug)]
struct Slowly;

impl Optimizer for Slowly {
    fn states(&self, _: &str, _: &[usize]) -> Vec<StateTensor> {
        Vec::new()
    }

    fn update(&self, _: &mut Parameter, _: Update, _: &mut Together) -> StageResult<()> {
        Ok(())
    }
}

#[test]
fn a_layer_an_optimizer_and_a_loss_of_ones_own_run_on_the_cpu_until_they_say_otherwise() {
    if emulator::start().is_none() {
        return;
    }
    let recipe = recipe(2, false, 4);
    let gpu = || vec![on(GPU, DType::F32)];
    let builder = || recipe.builder(named("1f1b", 2, 4)).places(gpu());
    let told = |builder: PipelineBuilder<Sequential>| builder.launch().expect_err("refused").to_string();

    let layers = Model::new(vec![
        LayerSpec::of("relu", 1.0, || Relu::new("relu")),
        LayerSpec::of("plain", 1.0, || PlainLayer),
    ]);
    has(
        &told(builder().stages(layers.split(2).expect("two"))),
        &["stage 1 (rank 1) cannot be built on cuda:0: plain: this layer does not run on cuda:0, \
             only on cpu"],
    );
    has(&told(builder().optimizer(Slowly)), &["the optimizer Slowly does not run on cuda:0"]);
    has(&told(builder().loss(PlainLoss)), &["rank 1: the loss does not run on cuda:0"]);
}
