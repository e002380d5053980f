//! Gated activations: one half of a row goes through an activation, and multiplies the other half. Shazeer,
//! "GLU variants improve transformer" (2020). The next row is prefetched: a half of a row is soon at its
//! end, and the CPU's own prefetching does not see where the next one begins.

use multiversion::multiversion;

use crate::cpu::math::{bounded_exp, sigmoid};
use crate::cpu::parts::{By, EXP, cut};
use crate::cpu::prefetch::prefetch_ahead;
use crate::cpu::real::Real;
use crate::layers::pointwise::cpu::{Activation, BLOCK, first_halves};
use crate::layers::pointwise::gelu::{GeluExact, GeluTanh};

/// The activation of a gated layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateForm {
    /// `x / (1 + exp(-x))`: SwiGLU, as in Llama.
    Silu,
    /// `x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))`: GeGLU, as in Gemma.
    GeluTanh,
    /// `x/2 (1 + erf(x / sqrt(2)))`: GeGLU.
    Gelu,
}

/// Writes rows of `width` numbers: the values at the first half of each row of `input`, which has twice that
/// width, times the second half.
pub(crate) fn forward<N: Real>(form: GateForm, out: &mut [N], input: &[N], width: usize) {
    let part = match form {
        GateForm::Silu => forward_part::<N, Silu>,
        GateForm::GeluTanh => forward_part::<N, GeluTanh>,
        GateForm::Gelu => forward_part::<N, GeluExact>,
    };
    let rows = (By(out, width), By(input, 2 * width));
    cut(rows, EXP * width, |_, (out, input)| {
        part(out, input, width);
    });
}

#[multiversion(targets = "simd")]
fn forward_part<N: Real, A: Activation>(out: &mut [N], input: &[N], width: usize) {
    let mut room = [0.0; BLOCK];
    for (out, row) in out.chunks_exact_mut(width).zip(input.chunks_exact(2 * width)) {
        let (gates, others) = row.split_at(width);
        let blocks = out.chunks_mut(BLOCK).zip(gates.chunks(BLOCK));
        for ((out, gates), others) in blocks.zip(others.chunks(BLOCK)) {
            prefetch_ahead(gates, 2 * width);
            prefetch_ahead(others, 2 * width);
            prefetch_ahead(out, width);
            let firsts = first_halves::<N, A>(&mut room, gates);
            for (((out, gate), other), &first) in out.iter_mut().zip(gates).zip(others).zip(firsts) {
                *out = N::narrow(A::second_half(gate.wide(), first)[0] * other.wide());
            }
        }
    }
}

/// Turns the input into its gradient, with the output gradient.
pub(crate) fn backward<N: Real>(form: GateForm, grad: &[N], input: &mut [N], width: usize) {
    let part = match form {
        GateForm::Silu => backward_part::<N, Silu>,
        GateForm::GeluTanh => backward_part::<N, GeluTanh>,
        GateForm::Gelu => backward_part::<N, GeluExact>,
    };
    let rows = (By(input, 2 * width), By(grad, width));
    cut(rows, EXP * width, |_, (input, grad)| {
        part(grad, input, width);
    });
}

#[multiversion(targets = "simd")]
fn backward_part<N: Real, A: Activation>(grad: &[N], input: &mut [N], width: usize) {
    let mut room = [0.0; BLOCK];
    for (grad, row) in grad.chunks_exact(width).zip(input.chunks_exact_mut(2 * width)) {
        let (gates, others) = row.split_at_mut(width);
        let blocks = grad.chunks(BLOCK).zip(gates.chunks_mut(BLOCK));
        for ((grad, gates), others) in blocks.zip(others.chunks_mut(BLOCK)) {
            prefetch_ahead(gates, 2 * width);
            prefetch_ahead(others, 2 * width);
            prefetch_ahead(grad, width);
            let firsts = first_halves::<N, A>(&mut room, gates);
            for (((grad, gate), other), &first) in grad.iter().zip(gates).zip(others).zip(firsts) {
                let [value, derivative] = A::second_half(gate.wide(), first);
                *gate = N::narrow(grad.wide() * other.wide() * derivative);
                *other = N::narrow(grad.wide() * value);
            }
        }
    }
}

/// Like [`backward`], and also turns the output gradient into the output.
pub(crate) fn backward_and_forward<N: Real>(form: GateForm, grad: &mut [N], input: &mut [N], width: usize) {
    let part = match form {
        GateForm::Silu => backward_and_forward_part::<N, Silu>,
        GateForm::GeluTanh => backward_and_forward_part::<N, GeluTanh>,
        GateForm::Gelu => backward_and_forward_part::<N, GeluExact>,
    };
    let rows = (By(input, 2 * width), By(grad, width));
    cut(rows, EXP * width, |_, (input, grad)| {
        part(grad, input, width);
    });
}

#[multiversion(targets = "simd")]
fn backward_and_forward_part<N: Real, A: Activation>(grad: &mut [N], input: &mut [N], width: usize) {
    let mut room = [0.0; BLOCK];
    for (grad, row) in grad.chunks_exact_mut(width).zip(input.chunks_exact_mut(2 * width)) {
        let (gates, others) = row.split_at_mut(width);
        let blocks = grad.chunks_mut(BLOCK).zip(gates.chunks_mut(BLOCK));
        for ((grad, gates), others) in blocks.zip(others.chunks_mut(BLOCK)) {
            prefetch_ahead(gates, 2 * width);
            prefetch_ahead(others, 2 * width);
            prefetch_ahead(grad, width);
            let firsts = first_halves::<N, A>(&mut room, gates);
            for (((grad, gate), other), &first) in grad.iter_mut().zip(gates).zip(others).zip(firsts) {
                let [value, derivative] = A::second_half(gate.wide(), first);
                let (slope, factor) = (grad.wide(), other.wide());
                *grad = N::narrow(value * factor);
                *gate = N::narrow(slope * factor * derivative);
                *other = N::narrow(slope * value);
            }
        }
    }
}

/// `x / (1 + exp(-x))`, which is `x sigmoid(x)`. Hendrycks and Gimpel name it in the same paper; Elfwing,
/// Uchibe and Doya, "Sigmoid-weighted linear units" (2017).
pub(crate) struct Silu;

impl Activation for Silu {
    #[inline(always)]
    fn first_half(x: f32) -> f32 {
        bounded_exp(-x)
    }

    #[inline(always)]
    fn second_half(x: f32, first: f32) -> [f32; 2] {
        let [gate, rest] = sigmoid(first);
        let value = x * gate;
        [value, value.mul_add(rest, gate)]
    }
}
