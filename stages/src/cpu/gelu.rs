//! GELU and its derivative, in both forms. Hendrycks and Gimpel, "Gaussian error linear units" (2016).

use multiversion::multiversion;

use super::math::{bounded_exp, erfc, exp, sigmoid};
use super::parts::{By, EXP, cut};
use super::prefetch::LINE;
use super::real::Real;

/// `2 sqrt(2 / pi)`: the tanh form is `x sigmoid(2 u)` with `u = sqrt(2 / pi) (x + 0.044715 x^3)`.
const SLOPE: f32 = 1.595_769;
const CUBIC: f32 = 0.044_715;
/// `1 / sqrt(2 pi)`, the normal density at 0.
const DENSITY: f32 = 0.398_942_3;

/// How many numbers go through one loop before the next takes them from the first-level cache. Two loops with
/// half of the operations in each overlap more of them than one long loop.
const BLOCK: usize = 256;

/// The first half of the work on a number: the exponential of the tanh form, or the tail of the exact form.
#[inline(always)]
fn first_half<const EXACT: bool>(x: f32) -> f32 {
    if EXACT {
        0.5 * erfc(x.abs() * std::f32::consts::FRAC_1_SQRT_2)
    } else {
        bounded_exp(-(SLOPE * x * (CUBIC * x).mul_add(x, 1.0)))
    }
}

/// Value and derivative, from the first half.
#[inline(always)]
fn second_half<const EXACT: bool>(x: f32, first: f32) -> [f32; 2] {
    if EXACT {
        let normal = if x < 0.0 { first } else { 1.0 - first };
        [x * normal, (x * DENSITY).mul_add(exp(-0.5 * x * x), normal)]
    } else {
        let [gate, rest] = sigmoid(first);
        let inner = SLOPE * (3.0 * CUBIC * x).mul_add(x, 1.0);
        [x * gate, (x * inner * gate).mul_add(rest, gate)]
    }
}

#[inline(always)]
fn first_halves<'a, N: Real, const EXACT: bool>(room: &'a mut [f32; BLOCK], input: &[N]) -> &'a [f32] {
    let room = &mut room[..input.len()];
    for (first, x) in room.iter_mut().zip(input) {
        *first = first_half::<EXACT>(x.wide());
    }
    room
}

/// Writes the values of GELU at `input`.
pub(crate) fn forward<N: Real>(exact: bool, out: &mut [N], input: &[N]) {
    let part = if exact {
        forward_part::<N, true>
    } else {
        forward_part::<N, false>
    };
    cut((By(out, LINE), By(input, LINE)), EXP * LINE, |_, (out, input)| {
        part(out, input)
    });
}

#[multiversion(targets = "simd")]
fn forward_part<N: Real, const EXACT: bool>(out: &mut [N], input: &[N]) {
    let mut room = [0.0; BLOCK];
    for (out, input) in out.chunks_mut(BLOCK).zip(input.chunks(BLOCK)) {
        let firsts = first_halves::<N, EXACT>(&mut room, input);
        for ((out, x), &first) in out.iter_mut().zip(input).zip(firsts) {
            *out = N::narrow(second_half::<EXACT>(x.wide(), first)[0]);
        }
    }
}

/// Multiplies the gradient by the derivatives of GELU at `input`.
pub(crate) fn backward<N: Real>(exact: bool, grad: &mut [N], input: &[N]) {
    let part = if exact {
        backward_part::<N, true>
    } else {
        backward_part::<N, false>
    };
    cut(
        (By(grad, LINE), By(input, LINE)),
        EXP * LINE,
        |_, (grad, input)| part(grad, input),
    );
}

#[multiversion(targets = "simd")]
fn backward_part<N: Real, const EXACT: bool>(grad: &mut [N], input: &[N]) {
    let mut room = [0.0; BLOCK];
    for (grad, input) in grad.chunks_mut(BLOCK).zip(input.chunks(BLOCK)) {
        let firsts = first_halves::<N, EXACT>(&mut room, input);
        for ((grad, x), &first) in grad.iter_mut().zip(input).zip(firsts) {
            *grad = N::narrow(grad.wide() * second_half::<EXACT>(x.wide(), first)[1]);
        }
    }
}

/// Like [`backward`], and also turns the input into the values.
pub(crate) fn backward_and_forward<N: Real>(exact: bool, grad: &mut [N], input: &mut [N]) {
    let part = if exact {
        backward_and_forward_part::<N, true>
    } else {
        backward_and_forward_part::<N, false>
    };
    cut(
        (By(grad, LINE), By(input, LINE)),
        EXP * LINE,
        |_, (grad, input)| part(grad, input),
    );
}

#[multiversion(targets = "simd")]
fn backward_and_forward_part<N: Real, const EXACT: bool>(grad: &mut [N], input: &mut [N]) {
    let mut room = [0.0; BLOCK];
    for (grad, input) in grad.chunks_mut(BLOCK).zip(input.chunks_mut(BLOCK)) {
        let firsts = first_halves::<N, EXACT>(&mut room, input);
        for ((grad, x), &first) in grad.iter_mut().zip(input).zip(firsts) {
            let [value, derivative] = second_half::<EXACT>(x.wide(), first);
            *grad = N::narrow(grad.wide() * derivative);
            *x = N::narrow(value);
        }
    }
}
