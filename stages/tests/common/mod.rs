//! Helpers for the tests of layers.
#![allow(dead_code, reason = "every test file uses a part of it")]

pub(crate) mod blocks;

use pipewright_stages::{DType, Device, ForwardContext, Layer, Mode, Place, Tensor, rng};

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

/// The first GPU, with this number format.
pub(crate) fn gpu(dtype: DType) -> Place {
    Place { device: Device::Cuda(0), dtype }
}

/// The numbers of a tensor, wherever it is.
pub(crate) fn here(tensor: Tensor) -> Vec<f32> {
    tensor.to(Place::default()).unwrap().f32().to_vec()
}

/// The bits of numbers.
pub(crate) fn bits(numbers: &[f32]) -> Vec<u32> {
    numbers.iter().map(|number| number.to_bits()).collect()
}

/// Panics if a number is further from the expected one than this share of the largest of its list.
#[track_caller]
pub(crate) fn assert_near(got: &[Vec<f32>], expected: &[Vec<f32>], within: f32, what: &str) {
    assert_eq!(got.len(), expected.len(), "{what}");
    for (index, (got, expected)) in got.iter().zip(expected).enumerate() {
        assert_eq!(got.len(), expected.len(), "{what}, list {index}");
        let largest = expected.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
        for (got, expected) in got.iter().zip(expected) {
            let off = (got - expected).abs();
            assert!(off <= within * largest, "{what}, list {index}: {got}, not {expected}");
        }
    }
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
