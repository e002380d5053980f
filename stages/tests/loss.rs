//! Losses and scores.

mod common;

use common::{assert_close, ids, tensor};
use pipewright_stages::loss::{CrossEntropy, Loss, MeanSquaredError, Score};
use pipewright_stages::{Shape, Tensor};
use proptest::prelude::*;

/// Loss, right predictions and gradient of a row of logits, by plain loops.
fn plain(row: &[f32], class: usize) -> (f64, bool, Vec<f64>) {
    let total: f64 = row.iter().map(|&x| f64::from(x).exp()).sum();
    let gradient = (0..row.len())
        .map(|j| f64::from(row[j]).exp() / total - if j == class { 1.0 } else { 0.0 })
        .collect();
    let best = (0..row.len())
        .rev()
        .max_by(|&a, &b| row[a].total_cmp(&row[b]))
        .unwrap();
    (total.ln() - f64::from(row[class]), best == class, gradient)
}

proptest! {
    #[test]
    fn cross_entropy_is_the_log_likelihood(rows in 1_usize..20, classes in 1_usize..60, ignored in 0_u32..4) {
        let logits = tensor("logits", &[rows, classes]);
        let target = ids("target", &[rows], classes as u32);
        let mut loss = CrossEntropy { ignore: Some(ignored) };
        let (score, grad) = loss.forward(logits.clone(), target.clone()).unwrap();
        let (mut sum, mut weight, mut correct, mut expected) = (0.0, 0.0, 0.0, Vec::new());
        for (row, &class) in logits.f32().chunks_exact(classes).zip(target.ids()) {
            if class == ignored {
                expected.extend(vec![0.0; classes]);
                continue;
            }
            let (one, right, gradient) = plain(row, class as usize);
            sum += one;
            weight += 1.0;
            correct += f64::from(u8::from(right));
            expected.extend(gradient);
        }
        prop_assert!((score.sum - sum).abs() <= 1e-5 * sum.abs().max(1.0));
        prop_assert_eq!((score.weight, score.correct), (weight, Some(correct)));
        assert_close("gradient", grad.f32(), &expected, 1e-6);
        prop_assert_eq!(loss.score(logits, target).unwrap(), score);
    }

    #[test]
    fn mean_squared_error_sums_over_all_numbers(rows in 1_usize..9, width in 1_usize..9) {
        let (output, target) = (tensor("output", &[rows, width]), tensor("target", &[rows, width]));
        let (score, grad) = MeanSquaredError.forward(output.clone(), target.clone()).unwrap();
        let differences = output.f32().iter().zip(target.f32()).map(|(&a, &b)| f64::from(a) - f64::from(b));
        let expected: Vec<f64> = differences.clone().map(|d| 2.0 * d).collect();
        let sum: f64 = differences.map(|d| d * d).sum();
        prop_assert!((score.sum - sum).abs() <= 1e-5 * sum);
        prop_assert_eq!((score.weight, score.correct), ((rows * width) as f64, None));
        assert_close("gradient", grad.f32(), &expected, 1e-6);
    }
}

#[test]
fn large_logits_neither_overflow_nor_hide_nan() {
    let target = Tensor::from_ids(&[1], vec![0]).unwrap();
    let run = |row: Vec<f32>| {
        let logits = Tensor::from_vec(&[1, row.len()], row).unwrap();
        CrossEntropy::default()
            .forward(logits, target.clone())
            .unwrap()
            .0
            .sum
    };
    assert_eq!(run(vec![1e4, -1e4]), 0.0);
    assert_eq!(run(vec![-1e4, 1e4]), 2e4);
    assert!(run(vec![0.0, f32::NAN]).is_nan());
}

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
    let error = MeanSquaredError
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
