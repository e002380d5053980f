//! Optimizers against their formulas in double precision, learning rates and clipping.

mod common;

use common::{assert_close, numbers};
use pipewright_stages::optimizer::{AdamW, Decay, LearningRate, Optimizer, Sgd, Update, clip_factor};
use pipewright_stages::{Init, Parameter};

const RATE: f64 = 1e-2;
const SCALE: f64 = 0.25;

/// Five updates with fixed gradients; gives the parameter and the weights that `formula` gives.
fn five_updates(
    optimizer: &dyn Optimizer,
    dims: &[usize],
    mut formula: impl FnMut(f64, f64, &mut [f64; 2], i32) -> f64,
) -> (Parameter, Vec<f64>) {
    let mut parameter = Parameter::new("p", dims, Init::Normal(1.0), 1);
    let mut weights: Vec<f64> = parameter.value.iter().map(|&x| f64::from(x)).collect();
    let mut states = vec![[0.0; 2]; weights.len()];
    for step in 1..=5 {
        parameter.grad = numbers(&format!("grad {step}"), weights.len());
        for ((weight, state), &grad) in weights.iter_mut().zip(&mut states).zip(&parameter.grad) {
            *weight = formula(*weight, f64::from(grad) * SCALE, state, step);
        }
        let before = parameter.grad.clone();
        optimizer.update(
            &mut parameter,
            Update {
                step: step as u64,
                learning_rate: RATE,
                scale: SCALE,
            },
        );
        assert_eq!(parameter.grad, before, "the gradient stays as it is");
    }
    (parameter, weights)
}

fn adamw(decay: f64) -> impl FnMut(f64, f64, &mut [f64; 2], i32) -> f64 {
    move |weight, grad, [mean, square], step| {
        *mean = 0.9 * *mean + 0.1 * grad;
        *square = 0.95 * *square + 0.05 * grad * grad;
        let root = (*square / (1.0 - 0.95_f64.powi(step))).sqrt() + 1e-8;
        weight * (1.0 - RATE * decay) - RATE * (*mean / (1.0 - 0.9_f64.powi(step))) / root
    }
}

fn sgd(decay: f64, momentum: f64) -> impl FnMut(f64, f64, &mut [f64; 2], i32) -> f64 {
    move |weight, grad, [sum, _], _| {
        *sum = momentum * *sum + grad + decay * weight;
        weight - RATE * *sum
    }
}

#[test]
fn adamw_follows_its_formula() {
    let optimizer = AdamW {
        betas: (0.9, 0.95),
        weight_decay: 0.1,
        ..AdamW::default()
    };
    let (parameter, expected) = five_updates(&optimizer, &[5, 7], adamw(0.1));
    assert_close("weights", &parameter.value, &expected, 1e-6);
    assert_eq!(parameter.state.len(), optimizer.state_names().len());
}

#[test]
fn sgd_follows_its_formula() {
    for momentum in [0.0, 0.9] {
        let optimizer = Sgd {
            momentum,
            weight_decay: 0.1,
            decay: Decay::Matrices,
        };
        let (parameter, expected) = five_updates(&optimizer, &[5, 7], sgd(0.1, momentum));
        assert_close("weights", &parameter.value, &expected, 1e-6);
        assert_eq!(parameter.state.len(), optimizer.state_names().len());
    }
}

#[test]
fn biases_and_norms_decay_only_when_told() {
    let optimizer = |decay| AdamW {
        betas: (0.9, 0.95),
        weight_decay: 0.1,
        decay,
        ..AdamW::default()
    };
    let (parameter, expected) = five_updates(&optimizer(Decay::Matrices), &[35], adamw(0.0));
    assert_close("weights", &parameter.value, &expected, 1e-6);
    let (parameter, expected) = five_updates(&optimizer(Decay::All), &[35], adamw(0.1));
    assert_close("weights", &parameter.value, &expected, 1e-6);
}

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
