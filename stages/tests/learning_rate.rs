//! Learning rates and clipping. Optimizers are tested in `accuracy/optimizer.rs`.

use pipewright_stages::optimizer::{LearningRate, clip_factor};

#[test]
fn warm_up_then_cosine_then_floor() {
    let rate = LearningRate::WarmupCosine {
        peak: 1.0,
        floor: 0.1,
        warmup_steps: 4,
        total_steps: 14,
    };
    let rates: Vec<f64> = (0..16).map(|step| rate.at(step)).collect();
    assert_eq!(rates[..5], [0.25, 0.5, 0.75, 1.0, 1.0]);
    assert!((rates[9] - 0.55).abs() < 1e-12, "half-way down: {}", rates[9]);
    assert!(rates[4..15].windows(2).all(|pair| pair[1] < pair[0]));
    assert_eq!(rates[14..], [0.1, 0.1]);
    assert_eq!(LearningRate::Constant(0.5).at(1000), 0.5);
}

#[test]
fn warm_up_then_a_straight_line_then_floor() {
    let rate = LearningRate::WarmupLinear {
        peak: 1.0,
        floor: 0.5,
        warmup_steps: 2,
        total_steps: 6,
    };
    let rates: Vec<f64> = (0..8).map(|step| rate.at(step)).collect();
    assert_eq!(rates, [0.5, 1.0, 1.0, 0.875, 0.75, 0.625, 0.5, 0.5]);
}

#[test]
fn warm_up_then_stable_then_decay() {
    let rate = |decay_steps| LearningRate::Wsd {
        peak: 1.0,
        floor: 0.5,
        warmup_steps: 2,
        decay_steps,
        total_steps: 8,
    };
    let rates = |decay_steps| -> Vec<f64> { (0..9).map(|step| rate(decay_steps).at(step)).collect() };
    assert_eq!(rates(4), [0.5, 1.0, 1.0, 1.0, 1.0, 0.875, 0.75, 0.625, 0.5]);
    assert_eq!(rates(0), [0.5, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.5]);
}

#[test]
fn warm_up_longer_than_the_run_is_no_failure() {
    let rate = LearningRate::WarmupCosine {
        peak: 1.0,
        floor: 0.0,
        warmup_steps: 10,
        total_steps: 5,
    };
    assert_eq!([rate.at(4), rate.at(10)], [0.5, 0.0]);
}

#[test]
fn clipping_brings_the_norm_to_the_limit() {
    assert_eq!(clip_factor(0.5, 1.0), 1.0);
    assert_eq!(clip_factor(1.0, 1.0), 1.0);
    assert_eq!(clip_factor(2.0, 1.0), 1.0 / (2.0 + 1e-6));
}
