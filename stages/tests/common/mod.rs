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
