//! GELU and its derivative, in both forms. Hendrycks and Gimpel, "Gaussian error linear units" (2016).

use multiversion::multiversion;

use crate::cpu::parts::{By, EXP, cut};
use crate::cpu::prefetch::LINE;
use crate::cpu::real::Real;
use crate::layers::pointwise::formulas::{Activation, BLOCK, GeluExact, GeluTanh, first_halves};

/// Writes the values of GELU at `input`.
pub(crate) fn forward<N: Real>(exact: bool, out: &mut [N], input: &[N]) {
    let part = if exact {
        forward_part::<N, GeluExact>
    } else {
        forward_part::<N, GeluTanh>
    };
    cut((By(out, LINE), By(input, LINE)), EXP * LINE, |_, (out, input)| {
        part(out, input)
    });
}

#[multiversion(targets = "simd")]
fn forward_part<N: Real, A: Activation>(out: &mut [N], input: &[N]) {
    let mut room = [0.0; BLOCK];
    for (out, input) in out.chunks_mut(BLOCK).zip(input.chunks(BLOCK)) {
        let firsts = first_halves::<N, A>(&mut room, input);
        for ((out, x), &first) in out.iter_mut().zip(input).zip(firsts) {
            *out = N::narrow(A::second_half(x.wide(), first)[0]);
        }
    }
}

/// Multiplies the gradient by the derivatives of GELU at `input`.
pub(crate) fn backward<N: Real>(exact: bool, grad: &mut [N], input: &[N]) {
    let part = if exact {
        backward_part::<N, GeluExact>
    } else {
        backward_part::<N, GeluTanh>
    };
    cut(
        (By(grad, LINE), By(input, LINE)),
        EXP * LINE,
        |_, (grad, input)| part(grad, input),
    );
}

#[multiversion(targets = "simd")]
fn backward_part<N: Real, A: Activation>(grad: &mut [N], input: &[N]) {
    let mut room = [0.0; BLOCK];
    for (grad, input) in grad.chunks_mut(BLOCK).zip(input.chunks(BLOCK)) {
        let firsts = first_halves::<N, A>(&mut room, input);
        for ((grad, x), &first) in grad.iter_mut().zip(input).zip(firsts) {
            *grad = N::narrow(grad.wide() * A::second_half(x.wide(), first)[1]);
        }
    }
}

/// Like [`backward`], and also turns the input into the values.
pub(crate) fn backward_and_forward<N: Real>(exact: bool, grad: &mut [N], input: &mut [N]) {
    let part = if exact {
        backward_and_forward_part::<N, GeluExact>
    } else {
        backward_and_forward_part::<N, GeluTanh>
    };
    cut(
        (By(grad, LINE), By(input, LINE)),
        EXP * LINE,
        |_, (grad, input)| part(grad, input),
    );
}

#[multiversion(targets = "simd")]
fn backward_and_forward_part<N: Real, A: Activation>(grad: &mut [N], input: &mut [N]) {
    let mut room = [0.0; BLOCK];
    for (grad, input) in grad.chunks_mut(BLOCK).zip(input.chunks_mut(BLOCK)) {
        let firsts = first_halves::<N, A>(&mut room, input);
        for ((grad, x), &first) in grad.iter_mut().zip(input).zip(firsts) {
            let [value, derivative] = A::second_half(x.wide(), first);
            *grad = N::narrow(grad.wide() * derivative);
            *x = N::narrow(value);
        }
    }
}
