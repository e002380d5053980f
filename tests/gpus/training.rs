//! What a step gives on a GPU.

use std::sync::Arc;

use pipewright::StepReport;
use pipewright::schedule::Schedule;
use pipewright::stages::models::Mlp;
use pipewright::stages::{DType, Device, Place};

use crate::common::{RandomRows, Recipe, recipe_of};
use crate::emulator;

const GPU: Device = Device::Cuda(0);

fn on(device: Device, dtype: DType) -> Place {
    Place { device, dtype }
}

/// A small perceptron with dropout and clipping.
fn perceptron() -> Recipe {
    let data = RandomRows {
        rows: 3,
        width: 10,
        classes: 5,
    };
    let model = || {
        Mlp {
            sizes: vec![10, 9, 7, 5],
            dropout: 0.1,
            seed: 3,
        }
        .model()
    };
    recipe_of(model, Arc::new(data), 4)
}

/// Reports of some steps, and the hash of the weights after them.
fn train(recipe: &Recipe, schedule: Schedule, places: Vec<Place>) -> (Vec<StepReport>, String) {
    let mut pipeline = recipe
        .builder(schedule)
        .expect("the sizes fit")
        .places(places)
        .launch()
        .expect("it starts");
    let reports = (0..4).map(|_| pipeline.step().expect("a step")).collect();
    (reports, pipeline.weights_hash().expect("a hash"))
}

fn assert_close(got: &[StepReport], expected: &[StepReport], within: f64) {
    for (got, expected) in got.iter().zip(expected) {
        let off = (got.loss - expected.loss).abs();
        assert!(
            off < within,
            "step {}: loss {} and {}",
            got.step,
            got.loss,
            expected.loss
        );
        let off = (got.grad_norm / expected.grad_norm - 1.0).abs();
        assert!(
            off < within,
            "step {}: norm {} and {}",
            got.step,
            got.grad_norm,
            expected.grad_norm
        );
    }
}

#[test]
fn a_perceptron_learns_on_a_gpu_what_it_learns_on_the_cpu() {
    if emulator::start().is_none() {
        return;
    }
    let recipe = perceptron();
    let schedule = || Schedule::one_f_one_b(2, 4).expect("the sizes fit");
    let (expected, _) = train(&recipe, schedule(), vec![]);
    let (got, _) = train(&recipe, schedule(), vec![on(GPU, DType::F32)]);
    assert_close(&got, &expected, 1e-5);
}
