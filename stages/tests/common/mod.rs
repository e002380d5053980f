//! What several tests of layers share.
#![allow(dead_code, reason = "every test file uses a part of it")]

use pipewright_stages::{ForwardContext, Layer, Mode, Tensor, rng};

/// A training moment of this micro-batch.
pub(crate) fn train(micro_batch: u32) -> ForwardContext {
    ForwardContext {
        step: 3,
        micro_batch,
        mode: Mode::Train,
    }
}

/// Numbers in `[-1, 1)`, a function of the name.
pub(crate) fn numbers(name: &str, count: usize) -> Vec<f32> {
    let mut numbers = vec![0.0; count];
    rng::fill_uniform(rng::key(7, name), 1.0, &mut numbers);
    numbers
}

/// A tensor of such numbers.
pub(crate) fn tensor(name: &str, dims: &[usize]) -> Tensor {
    Tensor::from_vec(dims, numbers(name, dims.iter().product())).unwrap()
}

/// Ids below `limit`, a function of the name.
pub(crate) fn ids(name: &str, dims: &[usize], limit: u32) -> Tensor {
    let draws = numbers(name, dims.iter().product());
    let ids = draws
        .iter()
        .map(|x| (((x + 1.0) * 0.5 * limit as f32) as u32).min(limit - 1));
    Tensor::from_ids(dims, ids.collect()).unwrap()
}

/// Gives every parameter numbers of its own, so that no gradient is a special case.
pub(crate) fn shuffle(layer: &mut dyn Layer) {
    for parameter in layer.parameters() {
        let draws = numbers(parameter.name(), parameter.value.len());
        parameter
            .value
            .iter_mut()
            .zip(draws)
            .for_each(|(value, draw)| *value += 0.5 * draw);
    }
}

/// Forward only.
pub(crate) fn forward(layer: &mut dyn Layer, input: &Tensor) -> Tensor {
    layer.forward(train(0), input.clone()).unwrap().0
}

/// Forward, backward-input and backward-weight; gives the output and the input gradient.
pub(crate) fn pass(layer: &mut dyn Layer, input: &Tensor, grad: &Tensor) -> (Tensor, Option<Tensor>) {
    let (output, saved) = layer.forward(train(0), input.clone()).unwrap();
    let (input_grad, pending) = layer.backward_input(saved, grad.clone()).unwrap();
    layer.backward_weight(pending).unwrap();
    (output, input_grad)
}

/// Asserts that two slices agree to `tolerance` of the largest expected number.
pub(crate) fn assert_close(what: &str, got: &[f32], expected: &[f64], tolerance: f64) {
    assert_eq!(got.len(), expected.len(), "{what}");
    let largest = expected
        .iter()
        .fold(1e-3_f64, |largest, number| largest.max(number.abs()));
    for (index, (&got, &expected)) in got.iter().zip(expected).enumerate() {
        let off = (f64::from(got) - expected).abs();
        assert!(
            off <= tolerance * largest,
            "{what}[{index}]: {got} and {expected}"
        );
    }
}

/// The scalar product of the layer's output with `weights`, in double precision.
fn objective(layer: &mut dyn Layer, input: &Tensor, weights: &Tensor) -> f64 {
    let output = forward(layer, input);
    output
        .f32()
        .iter()
        .zip(weights.f32())
        .map(|(&a, &b)| f64::from(a) * f64::from(b))
        .sum()
}

/// Step of the central differences.
const STEP: f32 = 1e-2;

/// Compares the gradients of the input and of every parameter with central differences of the output.
pub(crate) fn check_gradients(layer: &mut dyn Layer, input: &Tensor) {
    let shape = layer.output_shape(input.shape()).unwrap();
    let weights = tensor("objective", shape.dims());
    let (_, input_grad) = pass(layer, input, &weights);
    if let Some(input_grad) = input_grad {
        let slopes: Vec<f64> = (0..input.shape().count())
            .map(|index| {
                let mut slope = |step| {
                    let mut moved = input.clone();
                    moved.f32_mut()[index] += step;
                    objective(layer, &moved, &weights)
                };
                (slope(STEP) - slope(-STEP)) / (2.0 * f64::from(STEP))
            })
            .collect();
        assert_close("input gradient", input_grad.f32(), &slopes, 2e-3);
    }
    for which in 0..layer.parameters().len() {
        let name = layer.parameters()[which].name().to_owned();
        let slopes: Vec<f64> = (0..layer.parameters()[which].value.len())
            .map(|index| {
                let mut slope = |step| {
                    let before = layer.parameters()[which].value[index];
                    layer.parameters()[which].value[index] += step;
                    let moved = objective(layer, input, &weights);
                    layer.parameters()[which].value[index] = before;
                    moved
                };
                (slope(STEP) - slope(-STEP)) / (2.0 * f64::from(STEP))
            })
            .collect();
        assert_close(&name, &layer.parameters()[which].grad, &slopes, 2e-3);
    }
}
