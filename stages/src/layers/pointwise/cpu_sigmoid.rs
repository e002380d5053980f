//! The logistic sigmoid and its derivative.

use multiversion::multiversion;

use crate::cpu::math::{bounded_exp, sigmoid};
use crate::cpu::parts::{By, EXP, cut};
use crate::cpu::prefetch::LINE;
use crate::cpu::real::Real;
use crate::layers::pointwise::formulas::{Activation, BLOCK, first_halves};

/// `1 / (1 + exp(-x))`.
struct Sigmoid;

impl Activation for Sigmoid {
    #[inline(always)]
    fn first_half(x: f32) -> f32 {
        bounded_exp(-x)
    }

    #[inline(always)]
    fn second_half(_: f32, first: f32) -> [f32; 2] {
        let [value, rest] = sigmoid(first);
        [value, value * rest]
    }
}

/// Writes the values of the sigmoid at `input`.
pub(crate) fn forward<N: Real>(out: &mut [N], input: &[N]) {
    cut((By(out, LINE), By(input, LINE)), EXP * LINE, |_, (out, input)| {
        forward_part(out, input);
    });
}

#[multiversion(targets = "simd")]
fn forward_part<N: Real>(out: &mut [N], input: &[N]) {
    let mut room = [0.0; BLOCK];
    for (out, input) in out.chunks_mut(BLOCK).zip(input.chunks(BLOCK)) {
        let firsts = first_halves::<N, Sigmoid>(&mut room, input);
        for ((out, x), &first) in out.iter_mut().zip(input).zip(firsts) {
            *out = N::narrow(Sigmoid::second_half(x.wide(), first)[0]);
        }
    }
}

/// Multiplies the gradient by the derivatives of the sigmoid at `input`.
pub(crate) fn backward<N: Real>(grad: &mut [N], input: &[N]) {
    cut(
        (By(grad, LINE), By(input, LINE)),
        EXP * LINE,
        |_, (grad, input)| {
            backward_part(grad, input);
        },
    );
}

#[multiversion(targets = "simd")]
fn backward_part<N: Real>(grad: &mut [N], input: &[N]) {
    let mut room = [0.0; BLOCK];
    for (grad, input) in grad.chunks_mut(BLOCK).zip(input.chunks(BLOCK)) {
        let firsts = first_halves::<N, Sigmoid>(&mut room, input);
        for ((grad, x), &first) in grad.iter_mut().zip(input).zip(firsts) {
            *grad = N::narrow(grad.wide() * Sigmoid::second_half(x.wide(), first)[1]);
        }
    }
}
