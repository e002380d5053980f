//! The inputs of the tests.

use pipewright_stages::{Layer, Part, Place, Tensor};
use proptest::prelude::*;
use proptest::sample::select;

use super::approx::{Approx, stored};
use super::place;
use crate::common::{self, numbers};

/// The distribution of the numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// Between -1 and 1.
    Signed,
    /// Between 0 and 1, so that sums grow, and their errors too.
    Positive,
    /// Magnitudes between 1e-6 and 1e6, with zeros.
    Wide,
    /// Around 1e-20, so that products are denormal.
    Tiny,
    /// Denormal.
    Denormal,
}

/// Any kind.
pub(crate) fn kind() -> impl Strategy<Value = Kind> {
    select(vec![Kind::Signed, Kind::Positive, Kind::Wide, Kind::Tiny, Kind::Denormal])
}

/// Sizes at and near the sizes of registers, tiles and panels, and any size below 80.
pub(crate) fn size() -> impl Strategy<Value = usize> {
    prop_oneof![select(vec![1_usize, 2, 15, 16, 17, 31, 32, 33, 64, 65]), 1_usize..80]
}

/// Numbers of a kind that layers can store. They depend only on the name.
pub(crate) fn draw(kind: Kind, name: &str, count: usize) -> Vec<f32> {
    let mut drawn = numbers(name, count);
    let exponents = numbers(&format!("{name}, exponents"), count);
    for (number, exponent) in drawn.iter_mut().zip(exponents) {
        *number = match kind {
            Kind::Signed => *number,
            Kind::Positive => number.abs(),
            Kind::Wide if exponent > 0.8 => 0.0,
            Kind::Wide => *number * 10_f32.powf(6.0 * exponent),
            Kind::Tiny => *number * 1e-20,
            Kind::Denormal => *number * 1e-39,
        };
        *number = stored(*number);
    }
    drawn
}

/// A tensor of numbers.
pub(crate) fn tensor(dims: &[usize], numbers: Vec<f32>) -> Tensor {
    Tensor::from_vec(dims, numbers).unwrap()
}

/// The same numbers, without errors.
pub(crate) fn exact(numbers: &[f32]) -> Vec<Approx> {
    numbers.iter().map(|&number| Approx::exact(number)).collect()
}

/// Sets the values of a parameter.
pub(crate) fn set(layer: &mut dyn Layer, which: usize, numbers: Vec<f32>) {
    let parameter = &mut layer.parameters()[which];
    parameter.value.copy_from_slice(&numbers);
    parameter.store(Part::Value).unwrap();
}

/// A copy of the tensor in the place of the kernels.
pub(crate) fn there(tensor: &Tensor) -> Tensor {
    tensor.clone().to(place()).unwrap()
}

/// A tensor on the CPU.
pub(crate) fn back(tensor: Tensor) -> Tensor {
    tensor.to(Place::default()).unwrap()
}

/// The output and the input gradient of a layer. Also adds to the gradients of its parameters.
pub(crate) fn pass_any(layer: &mut dyn Layer, input: &Tensor, grad: &Tensor) -> (Tensor, Option<Tensor>) {
    layer.visit_parameters(&mut |parameter| parameter.move_to(place()).unwrap());
    let (output, input_grad) = common::pass(layer, &there(input), &there(grad));
    layer.visit_parameters(&mut |parameter| parameter.fetch(Part::Gradient).unwrap());
    (back(output), input_grad.map(back))
}

/// The same for a layer whose input is numbers.
pub(crate) fn pass(layer: &mut dyn Layer, input: &Tensor, grad: &Tensor) -> [Vec<f32>; 2] {
    let (output, input_grad) = pass_any(layer, input, grad);
    let input_grad = input_grad.expect("the input has a gradient");
    [output.f32().to_vec(), input_grad.f32().to_vec()]
}
