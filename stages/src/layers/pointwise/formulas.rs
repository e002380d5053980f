//! Activation functions and their derivatives, each in two halves.

use crate::cpu::math::{bounded_exp, erfc, exp, sigmoid};
use crate::cpu::real::Real;

/// How many numbers go through one loop before the next takes them from the first-level cache. Two loops with
/// half of the operations in each overlap more of them than one long loop.
pub(crate) const BLOCK: usize = 256;

/// An activation function.
pub(crate) trait Activation {
    /// The first half of the work on a number, mostly an exponential.
    fn first_half(x: f32) -> f32;

    /// Value and derivative, from the first half.
    fn second_half(x: f32, first: f32) -> [f32; 2];
}

/// Does the first half for a block of numbers.
#[inline(always)]
pub(crate) fn first_halves<'a, N: Real, A: Activation>(room: &'a mut [f32; BLOCK], input: &[N]) -> &'a [f32] {
    let room = &mut room[..input.len()];
    for (first, x) in room.iter_mut().zip(input) {
        *first = A::first_half(x.wide());
    }
    room
}

/// `x/2 (1 + tanh(u))`, which is `x sigmoid(2 u)`, with `u = sqrt(2 / pi) (x + 0.044715 x^3)`. Hendrycks and
/// Gimpel, "Gaussian error linear units" (2016).
pub(crate) struct GeluTanh;

impl GeluTanh {
    /// `2 sqrt(2 / pi)`.
    const SLOPE: f32 = 1.595_769;
    const CUBIC: f32 = 0.044_715;
}

impl Activation for GeluTanh {
    #[inline(always)]
    fn first_half(x: f32) -> f32 {
        bounded_exp(-(Self::SLOPE * x * (Self::CUBIC * x).mul_add(x, 1.0)))
    }

    #[inline(always)]
    fn second_half(x: f32, first: f32) -> [f32; 2] {
        let [gate, rest] = sigmoid(first);
        let inner = Self::SLOPE * (3.0 * Self::CUBIC * x).mul_add(x, 1.0);
        [x * gate, (x * inner * gate).mul_add(rest, gate)]
    }
}

/// `x/2 (1 + erf(x / sqrt(2)))`, of the same paper.
pub(crate) struct GeluExact;

impl GeluExact {
    /// `1 / sqrt(2 pi)`, the normal density at 0.
    const DENSITY: f32 = 0.398_942_3;
}

impl Activation for GeluExact {
    #[inline(always)]
    fn first_half(x: f32) -> f32 {
        0.5 * erfc(x.abs() * std::f32::consts::FRAC_1_SQRT_2)
    }

    #[inline(always)]
    fn second_half(x: f32, first: f32) -> [f32; 2] {
        let normal = if x < 0.0 { first } else { 1.0 - first };
        [x * normal, (x * Self::DENSITY).mul_add(exp(-0.5 * x * x), normal)]
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
