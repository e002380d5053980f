//! Models of candle train to the bits of a plain loop, however they are cut.

#[path = "../../tests/common/mod.rs"]
mod common;
#[path = "../../tests/common/failing.rs"]
mod failing;

use std::num::NonZeroU32;
use std::sync::Arc;

use candle_core::{D, Tensor};
use candle_nn::{Module, VarBuilder, embedding, linear, linear_no_bias};
use common::*;
use failing::{Failing, Faults, How};
use pipewright::plan::Costs;
use pipewright::schedule::Schedule;
use pipewright::stages::layers::Dropout;
use pipewright::stages::loss::CrossEntropy;
use pipewright::stages::models::{LayerSpec, Model};
use pipewright::stages::{Recompute, Stage, StageBuilder, chain, recompute};
use pipewright::{Pipeline, PipelineBuilder};
use pipewright_candle::{split_linear, unit};

const DIM: usize = 8;
const VOCAB: usize = 17;

/// `x + attention(norm x)` with one causal head, of operations that have gradients.
fn attention(weights: VarBuilder<'_>) -> candle_core::Result<impl Module + use<>> {
    let qkv = linear_no_bias(DIM, 3 * DIM, weights.pp("qkv"))?;
    let out = linear(DIM, DIM, weights.pp("out"))?;
    Ok(move |x: &Tensor| {
        let qkv = qkv.forward(x)?.chunk(3, D::Minus1)?;
        let time = x.dim(1)?;
        let past = Tensor::tril2(time, candle_core::DType::F32, x.device())?;
        let mask = ((past - 1.0)? * 1e9)?;
        let scores = qkv[0].matmul(&qkv[1].t()?)?.broadcast_add(&mask)?;
        let seen = candle_nn::ops::softmax(&scores, D::Minus1)?.matmul(&qkv[2].contiguous()?)?;
        x + out.forward(&seen)?
    })
}

/// A small language model: candle's parts, with dropout of ours in between.
fn model() -> Model {
    let dropout = LayerSpec::new("drop", 1.0, || Ok(chain![Dropout::new("drop", 0.1, 7)?]));
    Model::new(vec![
        unit("wte", 1.0, 3, |weights| embedding(VOCAB, DIM, weights)),
        unit("h.0", 400.0, 3, attention),
        dropout,
        unit("h.1", 400.0, 3, attention),
        unit("mlp", 300.0, 3, |weights| {
            let up = split_linear(DIM, 16, weights.pp("up"))?;
            let down = split_linear(16, DIM, weights.pp("down"))?;
            Ok(move |x: &Tensor| x + down.forward(&up.forward(x)?.gelu_erf()?)?)
        }),
        unit("head", 300.0, 3, |weights| linear_no_bias(DIM, VOCAB, weights)),
    ])
}

fn recipe(micro_batches: u32) -> Recipe {
    let data = RandomTokens { rows: 2, seq: 5, vocab: VOCAB as u32 };
    recipe_of(|| Ok(model()), Arc::new(data), micro_batches)
}

#[test]
fn every_schedule_and_cut_trains_to_the_bits_of_a_plain_loop() {
    let recipe = recipe(4);
    let plain = recipe.plain_hash(3);
    for name in Schedule::names() {
        let chunks = *Schedule::chunks(name).expect("it has a name").start();
        for ranks in (1..=4).filter(|ranks| ranks * chunks <= 6) {
            let Ok(schedule) = Schedule::make(name, ranks, Some(chunks), 4, &Costs::default()) else {
                continue;
            };
            assert_eq!(recipe.hash_on(schedule, 3), plain, "{name} on {ranks} ranks");
        }
    }
}

#[test]
fn replicas_and_threads_of_a_rank_keep_the_bits() {
    let plain = recipe(4).plain_hash(3);
    let replicas = Recipe { replicas: 2, sharded: true, ..recipe(4) };
    assert_eq!(replicas.hash(2, "1f1b", 3), plain, "replicas");
    let threads = Recipe { threads_per_rank: 2, ..recipe(4) };
    assert_eq!(threads.hash(2, "1f1b", 3), plain, "threads");
}

#[test]
fn a_checkpoint_goes_on_under_another_cut() {
    let folder = tempfile::tempdir().expect("a folder");
    let recipe = recipe(4);
    let mut first = recipe.pipeline(3, "zb-h1");
    (0..2).for_each(|_| drop(first.step().expect("the step succeeds")));
    first.save(folder.path().join("two")).expect("it is saved");
    let mut second = recipe.pipeline(2, "1f1b");
    second.load(folder.path().join("two")).expect("it is read");
    (0..2).for_each(|_| drop(second.step().expect("the step succeeds")));
    assert_eq!(second.weights_hash().expect("it runs"), recipe.plain_hash(4));
}

/// A pipeline of these stages, two of them.
fn builder<S: Stage<Wire = pipewright::stages::Tensor>>(
    recipe: &Recipe,
    stages: Vec<StageBuilder<S>>,
) -> PipelineBuilder<S> {
    Pipeline::builder()
        .schedule(Schedule::one_f_one_b(2, 4).expect("the sizes fit"))
        .stages(stages)
        .loss(CrossEntropy::default())
        .data(Arc::clone(&recipe.data))
        .optimizer(recipe.optimizer)
        .learning_rate(recipe.learning_rate)
        .clip(0.5)
        .gradient_groups(recipe.gradient_groups)
        .pin(false)
}

/// The hash of all weights after three steps.
fn trained<S: Stage>(mut pipeline: Pipeline<S>) -> String {
    (0..3).for_each(|_| drop(pipeline.step().expect("the step succeeds")));
    pipeline.weights_hash().expect("it runs")
}

#[test]
fn recomputed_stages_keep_the_bits() {
    let recipe = recipe(4);
    let stages = model().split(2).expect("it can be cut").into_iter();
    let stages = stages.map(|stage| recompute(stage, Recompute::Full)).collect();
    let pipeline = builder(&recipe, stages).launch().expect("it starts");
    assert_eq!(trained(pipeline), recipe.plain_hash(3));
}

#[test]
fn a_rank_that_fails_is_built_again_with_the_same_bits() {
    let recipe = recipe(4);
    let stages = model().split(2).expect("it can be cut").into_iter();
    let faults = Faults::at(&[(20, How::Fails), (45, How::Panics)]);
    let stages = stages.map(|stage| Failing::around(stage, faults.clone())).collect();
    let every = NonZeroU32::new(2).expect("not 0");
    let pipeline = builder(&recipe, stages).restarts(3, every).launch().expect("it starts");
    assert_eq!(trained(pipeline), recipe.plain_hash(3));
    assert!(faults.calls() > 45, "both faults came true: {}", faults.calls());
}

#[test]
fn an_evaluation_changes_nothing() {
    let recipe = recipe(4);
    let mut pipeline = recipe.pipeline(2, "1f1b");
    pipeline.step().expect("the step succeeds");
    let first = pipeline.evaluate(Arc::clone(&recipe.data), 3).expect("it evaluates");
    assert_eq!(pipeline.evaluate(Arc::clone(&recipe.data), 3).expect("it evaluates"), first);
    pipeline.step().expect("the step succeeds");
    assert_eq!(pipeline.weights_hash().expect("it runs"), recipe.plain_hash(2));
}
