//! The hyperbolic tangent and its derivative.

use multiversion::multiversion;

use crate::cpu::math::tanh;
use crate::cpu::parts::{By, EXP, cut};
use crate::cpu::prefetch::LINE;

/// Replaces each number by its hyperbolic tangent.
pub(crate) fn forward(numbers: &mut [f32]) {
    cut(By(numbers, LINE), EXP * LINE, |_, numbers| forward_part(numbers));
}

#[multiversion(targets = "simd")]
fn forward_part(numbers: &mut [f32]) {
    for number in numbers {
        *number = tanh(*number);
    }
}

/// Multiplies the gradient by the derivatives, which are `1 - y^2` for the output `y`.
pub(crate) fn backward(grad: &mut [f32], output: &[f32]) {
    cut((By(grad, LINE), By(output, LINE)), LINE, |_, (grad, output)| {
        backward_part(grad, output);
    });
}

#[multiversion(targets = "simd")]
fn backward_part(grad: &mut [f32], output: &[f32]) {
    for (grad, y) in grad.iter_mut().zip(output) {
        *grad *= (1.0 - y) * (1.0 + y);
    }
}
