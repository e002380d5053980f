//! Losses.

use pipewright_stages::Tensor;
use pipewright_stages::loss::{CrossEntropy, Loss, MeanSquaredError, Metric, Score};
use proptest::prelude::*;
use proptest::sample::select;

use super::approx::{Approx, assert_within, stored};
use super::inputs::{Kind, back, draw, exact, kind, size, tensor, there};
use crate::common::ids;

/// A difference: one operation, correctly rounded.
const DIFFERENCE: f64 = 1.0;
/// A softmax. Largest measured: 1.4.
const CROSS_ENTROPY: f64 = 3.0;
/// A difference, squared and added up in double precision. Largest measured: 0.7.
const SQUARED_ERROR: f64 = 2.0;

/// The loss, the gradient, and whether the class is the first of the largest logits.
fn cross_entropy(logits: &[f32], class: usize, smoothing: f32) -> (Approx, Vec<Approx>, bool) {
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let shifted: Vec<Approx> =
        exact(logits).into_iter().map(|logit| logit - Approx::exact(largest)).collect();
    let powers: Vec<Approx> = shifted.iter().map(|logit| logit.exp()).collect();
    let total = Approx::sum(powers.iter().copied());
    let mut grad: Vec<Approx> = powers.into_iter().map(|power| power / total).collect();
    let [share, count] = [smoothing, logits.len() as f32].map(Approx::exact);
    let mut loss = total.ln() - shifted[class];
    if smoothing > 0.0 {
        grad.iter_mut().for_each(|grad| *grad = *grad - share / count);
        let target = Approx::exact(logits[class]);
        let apart = Approx::sum(exact(logits).into_iter().map(|logit| logit - target));
        loss = loss - share * (apart / count);
    }
    grad[class] = grad[class] - (Approx::exact(1.0) - share);
    grad.iter_mut().for_each(|grad| *grad = grad.stored());
    let first = logits.iter().position(|&logit| logit == largest);
    (loss, grad, first == Some(class))
}

fn check_cross_entropy(logits: &[f32], target: &Tensor, ignore: Option<u32>, smoothing: f32) {
    let classes = logits.len() / target.shape().count();
    let loss = ignore.map_or_else(CrossEntropy::default, CrossEntropy::ignoring);
    let mut loss = loss.smoothed(smoothing).unwrap();
    let output = there(&tensor(&[target.shape().count(), classes], logits.to_vec()));
    let (score, grad) = loss.forward(output.clone(), target.clone()).unwrap();
    let mut sum = Approx::exact(0.0);
    let mut counted = Score::default().with([Metric::ACCURACY.of(0.0, 0.0)]);
    let mut expected = Vec::new();
    for (row, &class) in logits.chunks_exact(classes).zip(target.ids()) {
        if ignore == Some(class) {
            expected.extend(vec![Approx::exact(0.0); classes]);
            continue;
        }
        let (one, grads, right) = cross_entropy(row, class as usize, smoothing);
        sum = sum + one;
        let accuracy = Metric::ACCURACY.of(f64::from(u8::from(right)), 1.0);
        counted.add(Score::new(0.0, 1.0).with([accuracy]));
        expected.extend(grads);
    }
    assert_eq!((score.weight, score.metrics), (counted.weight, counted.metrics));
    assert_within(CROSS_ENTROPY, "cross-entropy: sum", &[score.sum as f32], &[sum]);
    assert_within(CROSS_ENTROPY, "cross-entropy: gradient", back(grad).f32(), &expected);
    assert_eq!(loss.score(output, target.clone()).unwrap(), score, "evaluation");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn cross_entropy_is_the_log_likelihood(
        rows in size(), classes in prop_oneof![size(), select(vec![257_usize, 1000])],
        factor in select(vec![1e-3_f32, 1.0, 8.0, 80.0]), ignored in 0_u32..4, ignore: bool,
        smoothing in select(vec![0.0_f32, 0.1, 0.9]),
    ) {
        let mut logits = draw(Kind::Signed, "logits", rows * classes);
        logits.iter_mut().for_each(|logit| *logit = stored(*logit * factor));
        let target = ids("target", &[rows], classes as u32);
        check_cross_entropy(&logits, &target, ignore.then_some(ignored), smoothing);
    }

    #[test]
    fn mean_squared_error_sums_over_all_numbers(rows in size(), width in size(), kind in kind()) {
        let [output, target] = ["output", "target"].map(|name| draw(kind, name, rows * width));
        let differences: Vec<Approx> =
            exact(&output).into_iter().zip(exact(&target)).map(|(output, target)| output - target).collect();
        let [output, target] = [output, target].map(|numbers| tensor(&[rows, width], numbers));
        let output = there(&output);
        let (score, grad) = MeanSquaredError::default().forward(output.clone(), target.clone()).unwrap();
        let doubled: Vec<Approx> =
            differences.iter().map(|&difference| (Approx::exact(2.0) * difference).stored()).collect();
        assert_within(DIFFERENCE, "squared error: gradient", back(grad).f32(), &doubled);
        let sum = Approx::dot(differences.iter().map(|&difference| (difference, difference)));
        assert_within(SQUARED_ERROR, "squared error: sum", &[score.sum as f32], &[sum]);
        assert_eq!(score, Score::new(score.sum, (rows * width) as f64));
        assert_eq!(MeanSquaredError::default().score(output, target).unwrap(), score, "evaluation");
    }
}

#[test]
fn as_many_classes_as_a_vocabulary_has() {
    // A block of a GPU keeps all of a row in shared memory, or a part.
    for classes in [50_257, 128_256, 151_937] {
        let mut logits = draw(Kind::Signed, "logits", 2 * classes);
        logits.iter_mut().for_each(|logit| *logit = stored(*logit * 10.0));
        let target = ids("target", &[2], classes as u32);
        check_cross_entropy(&logits, &target, None, 0.0);
        check_cross_entropy(&logits, &target, None, 0.1);
    }
}

/// One logit is far above all others, for a right and a wrong prediction; and several are equal.
#[test]
fn huge_logits() {
    for size in [80.0, 1e4, 1e30].map(stored) {
        for class in [0, 1] {
            let target = Tensor::from_ids(&[1], vec![class]).unwrap();
            check_cross_entropy(&[size, -size], &target, None, 0.0);
            check_cross_entropy(&[size, size], &target, None, 0.0);
        }
    }
}

#[test]
fn nan_stays_nan() {
    let target = Tensor::from_ids(&[2], vec![0, 1]).unwrap();
    let host = tensor(&[2, 2], vec![0.0, f32::NAN, 1.0, 2.0]);
    let output = there(&host);
    let (score, grad) = CrossEntropy::default().forward(output.clone(), target).unwrap();
    let grad = back(grad);
    assert!(score.sum.is_nan());
    assert_eq!([0, 1, 2, 3].map(|at| grad.f32()[at].is_nan()), [true, true, false, false]);
    assert!(MeanSquaredError::default().score(output, host).unwrap().sum.is_nan());
}
