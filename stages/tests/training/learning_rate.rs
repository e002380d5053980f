//! Learning rates and clipping. Optimizers are tested in `accuracy/optimizer.rs`.

use pipewright_stages::optimizer::LearningRate;

use super::*;

#[test]
fn warm_up_then_cosine_then_floor() {
    let rate = LearningRate::WarmupCosine { peak: 1.0, floor: 0.1, warmup_steps: 4, total_steps: 14 };
    let rates: Vec<f64> = (0..16).map(|step| rate.at(step)).collect();
    assert_eq!(rates[..5], [0.25, 0.5, 0.75, 1.0, 1.0]);
    assert!((rates[9] - 0.55).abs() < 1e-12, "half-way down: {}", rates[9]);
    assert!(rates[4..15].windows(2).all(|pair| pair[1] < pair[0]));
    assert_eq!(rates[14..], [0.1, 0.1]);
    assert_eq!(LearningRate::Constant(0.5).at(1000), 0.5);
}

/// By `transformers.get_scheduler` 5.23, with a rate of 1, 3 steps of warm-up and 10 in all, 4 of decay.
#[test]
fn rates_are_those_of_transformers_after_a_warm_up_that_is_one_step_ahead() {
    let (peak, floor, warmup_steps, total_steps) = (1.0, 0.0, 3, 10);
    let wsd = |decay_steps| LearningRate::Wsd { peak, floor, warmup_steps, decay_steps, total_steps };
    let cosine = LearningRate::WarmupCosine { peak, floor, warmup_steps, total_steps };
    let linear = LearningRate::WarmupLinear { peak, floor, warmup_steps, total_steps };
    let warm_up = [0.0, 0.333333333, 0.666666667, 1.0];
    for (ours, theirs) in [
        (cosine, [0.950484434, 0.811744901, 0.611260467, 0.388739533, 0.188255099, 0.049515566]),
        (linear, [0.857142857, 0.714285714, 0.571428571, 0.428571429, 0.285714286, 0.142857143]),
        (wsd(4), [1.0, 1.0, 1.0, 0.75, 0.5, 0.25]),
        (wsd(0), [1.0; 6]),
    ] {
        for step in 0..10 {
            let expected = match step {
                0..3 => warm_up[step + 1],
                3 => 1.0,
                _ => theirs[step - 4],
            };
            let got = ours.at(step as u64);
            assert!((got - expected).abs() < 1e-8, "{ours:?}, step {step}: {got}");
        }
    }
}

#[test]
fn warm_up_then_a_straight_line_then_floor() {
    let rate = LearningRate::WarmupLinear { peak: 1.0, floor: 0.5, warmup_steps: 2, total_steps: 6 };
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
    let rate = LearningRate::WarmupCosine { peak: 1.0, floor: 0.0, warmup_steps: 10, total_steps: 5 };
    assert_eq!([rate.at(4), rate.at(10)], [0.5, 0.0]);
}

#[test]
fn clipping_brings_the_norm_to_the_limit() {
    assert_eq!(clip_factor(0.5, 1.0), 1.0);
    assert_eq!(clip_factor(1.0, 1.0), 1.0);
    assert_eq!(clip_factor(2.0, 1.0), 1.0 / (2.0 + 1e-6));
}
