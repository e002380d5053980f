//! The errors of losses, and scores. Their numbers are tested in `accuracy/loss.rs`.

use common::tensor;
use pipewright_stages::Shape;
use pipewright_stages::loss::{MeanSquaredError, Metric};

use super::*;

#[test]
fn a_class_outside_the_logits_is_named() {
    let target = Tensor::from_ids(&[2], vec![1, 10]).unwrap();
    let error = CrossEntropy::default().score(tensor("logits", &[2, 10]), target).unwrap_err().to_string();
    assert_eq!(error, "loss: class 10 is outside 0..10");
}

#[test]
fn shapes_that_do_not_go_together_are_refused() {
    let check = |output: Shape, target: Shape| CrossEntropy::default().check(&output, &target);
    assert!(check(Shape::f32(&[4, 8, 10]), Shape::ids(&[4, 8])).is_ok());
    let error = check(Shape::f32(&[4, 8, 10]), Shape::ids(&[4])).unwrap_err().to_string();
    assert_eq!(error, "loss: expected ids[4, 8] as the target, got ids[4]");
    assert!(check(Shape::ids(&[4, 8]), Shape::ids(&[4])).is_err());
    let error =
        MeanSquaredError::default().check(&Shape::f32(&[4, 2]), &Shape::ids(&[4])).unwrap_err().to_string();
    assert_eq!(error, "loss: expected f32[4, 2] as the target, got ids[4]");
}

#[test]
fn scores_add_up() {
    const RECALL: Metric = Metric::share("recall");
    let mut total = Score::default();
    total.add(Score::new(1.0, 2.0).with([Metric::ACCURACY.of(1.0, 2.0), RECALL.of(0.0, 0.0)]));
    assert_eq!(total.metrics.get("recall"), None, "nothing was counted");
    total.add(Score::new(0.5, 1.0).with([Metric::ACCURACY.of(0.0, 1.0), RECALL.of(3.0, 4.0)]));
    let metrics = [Metric::ACCURACY.of(1.0, 3.0), RECALL.of(3.0, 4.0)];
    assert_eq!(total, Score::new(1.5, 3.0).with(metrics));
    assert_eq!(total.mean(), 0.5);
    let values: Vec<_> = total.metrics.iter().map(|metric| (metric.name(), metric.value())).collect();
    assert_eq!(values, [("accuracy", Some(1.0 / 3.0)), ("recall", Some(0.75))]);
    assert_eq!(total.metrics.get("precision"), None);
}

#[test]
fn a_metric_is_shown_in_its_form() {
    const ERROR: Metric = Metric::mean("absolute_error_of_32_characters_");
    let shown = [
        Metric::ACCURACY.of(1.0, 3.0).to_string(),
        Metric::PERPLEXITY.of(3.0, 2.0).to_string(),
        Metric::PERPLEXITY.of(40.0, 2.0).to_string(),
        ERROR.of(1.0, 3.0).to_string(),
        ERROR.of(0.0, 0.0).to_string(),
    ];
    assert_eq!(
        shown,
        [
            "accuracy 33.3 %",
            "perplexity 4.48",
            "perplexity 4.85e8",
            "absolute_error_of_32_characters_ 0.3333",
            "absolute_error_of_32_characters_ of nothing",
        ]
    );
}

#[test]
fn a_name_that_is_none_does_not_come_to_be() {
    let names = ["", "2nd", "_x", "Accuracy", "a b", "a-b", "é", &"x".repeat(33)];
    for name in names {
        let made = std::panic::catch_unwind(|| Metric::mean(name));
        assert!(made.is_err(), "{name:?}");
    }
}

/// PyTorch: `cross_entropy(logits, target, reduction="sum")` and its `exp` of the mean.
#[test]
fn cross_entropy_of_tokens_has_a_perplexity_unless_it_is_smoothed() {
    let logits = || Tensor::from_vec(&[2, 3], vec![1.0, 2.0, 3.0, 0.5, -1.0, 0.0]).unwrap();
    let target = || Tensor::from_ids(&[2], vec![2, 1]).unwrap();
    let of = |mut loss: CrossEntropy| loss.score(logits(), target()).unwrap();
    let score = of(CrossEntropy::default().of_tokens());
    assert_eq!(score.metrics.get("accuracy"), Some(0.5));
    let perplexity = score.metrics.get("perplexity").unwrap();
    assert!((perplexity - 3.510_885_5).abs() < 1e-5, "{perplexity}");
    assert_eq!(perplexity, score.mean().exp());
    assert_eq!(of(CrossEntropy::default()).metrics.get("perplexity"), None);
    let smoothed = CrossEntropy::default().of_tokens().smoothed(0.1).unwrap();
    assert_eq!(of(smoothed).metrics.get("perplexity"), None);
}

#[test]
fn a_smoothing_that_is_no_share_is_refused() {
    for share in [-0.1, 1.0, f32::NAN] {
        let error = CrossEntropy::default().smoothed(share).unwrap_err();
        assert!(error.to_string().starts_with("label smoothing "), "{share}: {error}");
    }
}
