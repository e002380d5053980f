//! What does not go with privacy is refused by name.

use super::has::has;
use super::*;
use pipewright::SyncMode;
use pipewright::stages::models::ResNet;
use pipewright::stages::{DType, Device, Place};

#[track_caller]
fn refused(builder: PipelineBuilder<Sequential>, parts: &[&str]) {
    let error = builder.launch().map(drop).expect_err("it is refused").to_string();
    has(&error, parts);
    has(&error, &["`.privacy(...)` (`privacy.clip`)"]);
}

#[test]
fn numbers_that_cannot_be() {
    let with = |privacy| small(1, 2).builder(named("1f1b", 2, 2)).privacy(privacy);
    for clip in [0.0, -1.0, f64::INFINITY, f64::NAN] {
        let told = format!("the largest norm of a gradient is {clip}: it must be above 0");
        refused(with(Privacy { clip, ..PRIVACY }), &[&told]);
    }
    for noise in [-0.1, f64::NAN] {
        let told = format!("the noise is {noise}: it must be 0 or more");
        refused(with(Privacy { noise, ..PRIVACY }), &[&told]);
    }
}

#[test]
fn stale_weights() {
    let mut recipe = small(1, 2);
    recipe.replicas = 2;
    recipe.sync = SyncMode::Server { max_staleness: 1 };
    let told = ["a training cannot be private: where weights may be stale", "`max_staleness`"];
    refused(builder(&recipe, named("1f1b", 2, 2)), &told);
}

#[test]
fn gpus() {
    let mut recipe = small(1, 2);
    recipe.place = Place { device: Device::Cuda(0), dtype: DType::F32 };
    refused(builder(&recipe, named("1f1b", 2, 2)), &["a training cannot be private: on cuda:0"]);
}

#[test]
fn tied_parameters_that_are_trained() {
    let gpt = Gpt { vocab: 17, dim: 16, layers: 1, heads: 2, context: 8, dropout: 0.0, tied: true, seed: 3 };
    let recipe = gpt_recipe(gpt, 1, 2);
    for stages in [1, 2] {
        let told = ["a tied parameter that is trained (`wte.weight`)", "`model.tied = false`"];
        refused(builder(&recipe, named("1f1b", stages, 2)), &told);
    }
}

#[test]
fn running_means() {
    let resnet = ResNet { image: [8, 8, 3], blocks: vec![1], width: 4, classes: 10, seed: 1 };
    let data = RandomRows { rows: 1, width: 8 * 8 * 3, classes: 10 };
    let recipe = recipe_of(move || resnet.model(), Arc::new(data), 2);
    refused(builder(&recipe, named("1f1b", 2, 2)), &["it is a running mean", "batch norm"]);
}
