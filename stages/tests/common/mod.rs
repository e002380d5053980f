//! Helpers for the tests of layers.
#![allow(dead_code, reason = "every test file uses a part of it")]

use pipewright_stages::{ForwardContext, Layer, Mode, Tensor, rng};

/// The context of this micro-batch in training.
pub(crate) fn train(micro_batch: u32) -> ForwardContext {
    ForwardContext { step: 3, micro_batch, mode: Mode::Train }
}

/// Random numbers in `[-1, 1)`. They depend only on the name.
pub(crate) fn numbers(name: &str, count: usize) -> Vec<f32> {
    let mut numbers = vec![0.0; count];
    rng::fill_uniform(rng::key(7, name), 1.0, &mut numbers);
    numbers
}

/// A tensor of such numbers.
pub(crate) fn tensor(name: &str, dims: &[usize]) -> Tensor {
    Tensor::from_vec(dims, numbers(name, dims.iter().product())).unwrap()
}

/// Random ids below `limit`. They depend only on the name.
pub(crate) fn ids(name: &str, dims: &[usize], limit: u32) -> Tensor {
    let draws = numbers(name, dims.iter().product());
    let ids = draws.iter().map(|x| (((x + 1.0) * 0.5 * limit as f32) as u32).min(limit - 1));
    Tensor::from_ids(dims, ids.collect()).unwrap()
}

/// Gives every parameter its own random numbers, so that no gradient is a special case.
pub(crate) fn shuffle(layer: &mut dyn Layer) {
    for parameter in layer.parameters() {
        let draws = numbers(parameter.name(), parameter.value.len());
        parameter.value.iter_mut().zip(draws).for_each(|(value, draw)| *value += 0.5 * draw);
    }
}

/// Runs forward only.
pub(crate) fn forward(layer: &mut dyn Layer, input: &Tensor) -> Tensor {
    layer.forward(train(0), input.clone()).unwrap().0
}

/// Runs forward, backward-input and backward-weight. Returns the output and the input gradient.
pub(crate) fn pass(layer: &mut dyn Layer, input: &Tensor, grad: &Tensor) -> (Tensor, Option<Tensor>) {
    let (output, saved) = layer.forward(train(0), input.clone()).unwrap();
    let (input_grad, pending) = layer.backward_input(saved, grad.clone()).unwrap();
    layer.backward_weight(pending).unwrap();
    (output, input_grad)
}
