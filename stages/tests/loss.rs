//! The errors of losses, and scores. Their numbers are tested in `accuracy/loss.rs`.

mod common;

use common::tensor;
use pipewright_stages::loss::{CrossEntropy, Loss, MeanSquaredError, Score};
use pipewright_stages::{Shape, Tensor};

#[test]
fn a_class_outside_the_logits_is_named() {
    let target = Tensor::from_ids(&[2], vec![1, 10]).unwrap();
    let error = CrossEntropy::default()
        .score(tensor("logits", &[2, 10]), target)
        .unwrap_err()
        .to_string();
    assert_eq!(error, "loss: class 10 is outside 0..10");
}

#[test]
fn shapes_that_do_not_go_together_are_refused() {
    let check = |output: Shape, target: Shape| CrossEntropy::default().check(&output, &target);
    assert!(check(Shape::f32(&[4, 8, 10]), Shape::ids(&[4, 8])).is_ok());
    let error = check(Shape::f32(&[4, 8, 10]), Shape::ids(&[4]))
        .unwrap_err()
        .to_string();
    assert_eq!(error, "loss: expected ids[4, 8] as the target, got ids[4]");
    assert!(check(Shape::ids(&[4, 8]), Shape::ids(&[4])).is_err());
    let error = MeanSquaredError::default()
        .check(&Shape::f32(&[4, 2]), &Shape::ids(&[4]))
        .unwrap_err()
        .to_string();
    assert_eq!(error, "loss: expected f32[4, 2] as the target, got ids[4]");
}

#[test]
fn scores_add_up() {
    let mut total = Score::default();
    total.add(Score {
        sum: 1.0,
        weight: 2.0,
        correct: Some(1.0),
    });
    total.add(Score {
        sum: 0.5,
        weight: 1.0,
        correct: Some(0.0),
    });
    assert_eq!(
        total,
        Score {
            sum: 1.5,
            weight: 3.0,
            correct: Some(1.0)
        }
    );
}

#[test]
fn a_smoothing_that_is_no_share_is_refused() {
    for share in [-0.1, 1.0, f32::NAN] {
        let error = CrossEntropy::default().smoothed(share).unwrap_err();
        assert!(
            error.to_string().starts_with("label smoothing "),
            "{share}: {error}"
        );
    }
}
