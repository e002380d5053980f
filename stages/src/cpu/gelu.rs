//! GELU and its derivative, in both forms. Hendrycks and Gimpel, "Gaussian error linear units" (2016).

use multiversion::multiversion;

use super::math::{erfc, exp, sigmoid};

/// `2 sqrt(2 / pi)`: the tanh form is `x sigmoid(2 u)` with `u = sqrt(2 / pi) (x + 0.044715 x^3)`.
const SLOPE: f32 = 1.595_769;
const CUBIC: f32 = 0.044_715;
/// `1 / sqrt(2 pi)`, the height of the normal density.
const DENSITY: f32 = 0.398_942_3;

#[inline(always)]
fn gate(x: f32) -> f32 {
    sigmoid(SLOPE * x * (CUBIC * x).mul_add(x, 1.0))
}

/// The normal distribution function.
#[inline(always)]
fn normal(x: f32) -> f32 {
    let tail = 0.5 * erfc(x.abs() * std::f32::consts::FRAC_1_SQRT_2);
    if x < 0.0 { tail } else { 1.0 - tail }
}

/// GELU in its tanh form.
#[multiversion(targets = "simd")]
pub(crate) fn tanh_form(out: &mut [f32], input: &[f32]) {
    for (out, &x) in out.iter_mut().zip(input) {
        *out = x * gate(x);
    }
}

/// Multiplies the gradient by the derivative of the tanh form at `input`.
#[multiversion(targets = "simd")]
pub(crate) fn tanh_form_grad(grad: &mut [f32], input: &[f32]) {
    for (grad, &x) in grad.iter_mut().zip(input) {
        let gate = gate(x);
        let inner = SLOPE * (3.0 * CUBIC * x).mul_add(x, 1.0);
        *grad *= (x * inner * gate).mul_add(1.0 - gate, gate);
    }
}

/// GELU with the exact normal distribution.
#[multiversion(targets = "simd")]
pub(crate) fn exact(out: &mut [f32], input: &[f32]) {
    for (out, &x) in out.iter_mut().zip(input) {
        *out = x * normal(x);
    }
}

/// Multiplies the gradient by the derivative of the exact form at `input`.
#[multiversion(targets = "simd")]
pub(crate) fn exact_grad(grad: &mut [f32], input: &[f32]) {
    for (grad, &x) in grad.iter_mut().zip(input) {
        *grad *= (x * DENSITY).mul_add(exp(-0.5 * x * x), normal(x));
    }
}
