//! The identity of a parameter, and the text and binary forms of what is sent between processes.

use pipewright_stages::loss::{Metric, Score};
use pipewright_stages::optimizer::Decay;
use pipewright_stages::{DType, Place, Recompute, Shard};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::*;

/// Asserts that the value has this text form, and that text and binary forms can be read back.
fn assert_form<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(
    value: T,
    text: serde_json::Value,
) {
    assert_eq!(serde_json::to_value(&value).unwrap(), text);
    assert_eq!(serde_json::from_value::<T>(text).unwrap(), value);
    let bytes = postcard::to_allocvec(&value).unwrap();
    assert_eq!(postcard::from_bytes::<T>(&bytes).unwrap(), value);
}

#[test]
fn what_stands_in_configs_has_one_word() {
    assert_form([DType::F32, DType::Bf16], json!(["f32", "bf16"]));
    assert_form(Recompute::ALL, json!(["none", "cheap", "selective", "full"]));
    assert_form([Decay::Matrices, Decay::All], json!(["matrices", "all"]));
    assert_form([Device::Cpu, Device::Cuda(3)], json!(["cpu", "cuda:3"]));
}

#[test]
fn what_crosses_processes_comes_back_the_same() {
    let place = Place { device: Device::Cuda(1), dtype: DType::Bf16 };
    assert_form(place, json!({"device": "cuda:1", "dtype": "bf16"}));
    assert_form(Shape::f32(&[8, 4]), json!({"kind": "f32", "dims": [8, 4]}));
    assert_form(Shape::ids(&[]), json!({"kind": "ids", "dims": []}));
    assert_form(Shard { index: 1, of: 4 }, json!({"index": 1, "of": 4}));
    let score = Score::new(0.1 + 0.2, 3.0).with([Metric::ACCURACY.of(2.0, 3.0)]);
    let accuracy = json!({"metric": {"name": "accuracy", "form": "share"}, "sum": 2.0, "weight": 3.0});
    assert_form(score, json!({"sum": 0.1 + 0.2, "weight": 3.0, "metrics": [accuracy, null, null, null]}));
}

#[test]
fn a_form_that_is_no_value_is_refused_and_not_a_panic() {
    let five = json!({"kind": "f32", "dims": [1, 2, 3, 4, 5]});
    let error = serde_json::from_value::<Shape>(five).unwrap_err().to_string();
    assert_eq!(error, "invalid length 5, expected at most 4 dimensions");
    let unnamed = json!({"name": "Accuracy", "form": "share"});
    let error = serde_json::from_value::<Metric>(unnamed).unwrap_err().to_string();
    assert_eq!(error, "invalid value: string \"Accuracy\", expected the name of a metric");
    let error = serde_json::from_value::<Device>(json!("gpu")).unwrap_err().to_string();
    assert_eq!(error, "`gpu` is no device: write `cpu`, or `cuda:0` for the first GPU");
}

#[test]
fn the_output_projection_of_a_tied_gpt_is_a_tied_copy_of_the_token_table() {
    let tied_names = |tied| {
        let gpt = Gpt { vocab: 50, dim: 8, layers: 1, heads: 2, context: 16, dropout: 0.0, tied, seed: 1 };
        let mut stage = gpt.model().unwrap().whole().unwrap();
        let all = stage.parameters().into_iter();
        let tied = all.filter(|parameter| parameter.is_tied());
        tied.map(|parameter| parameter.name().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(tied_names(true), ["wte.weight"]);
    assert!(tied_names(false).is_empty());
}

#[test]
fn a_parameter_is_whole_and_its_own_unless_somebody_says_otherwise() {
    let make = || Parameter::new("w", &[2], Init::Ones, 0);
    assert!(!make().is_tied());
    assert_eq!(make().shard(), Shard::WHOLE);
    assert_ne!(make(), make().tied());
}
