//! GELU and its derivative, in both forms. Hendrycks and Gimpel, "Gaussian error linear units" (2016).

use multiversion::multiversion;

use super::math::{erfc, exp, sigmoid};
use super::parts::{By, EXP, cut};
use super::prefetch::LINE;
use super::real::Real;

/// `2 sqrt(2 / pi)`: the tanh form is `x sigmoid(2 u)` with `u = sqrt(2 / pi) (x + 0.044715 x^3)`.
const SLOPE: f32 = 1.595_769;
const CUBIC: f32 = 0.044_715;
/// `1 / sqrt(2 pi)`, the normal density at 0.
const DENSITY: f32 = 0.398_942_3;

/// Value and derivative of the tanh form.
#[inline(always)]
fn tanh_form(x: f32) -> [f32; 2] {
    let [gate, rest] = sigmoid(SLOPE * x * (CUBIC * x).mul_add(x, 1.0));
    let inner = SLOPE * (3.0 * CUBIC * x).mul_add(x, 1.0);
    [x * gate, (x * inner * gate).mul_add(rest, gate)]
}

/// Value and derivative of the exact form.
#[inline(always)]
fn exact_form(x: f32) -> [f32; 2] {
    let tail = 0.5 * erfc(x.abs() * std::f32::consts::FRAC_1_SQRT_2);
    let normal = if x < 0.0 { tail } else { 1.0 - tail };
    [x * normal, (x * DENSITY).mul_add(exp(-0.5 * x * x), normal)]
}

/// Writes the values of GELU at `input`.
pub(crate) fn forward<N: Real>(exact: bool, out: &mut [N], input: &[N]) {
    cut((By(out, LINE), By(input, LINE)), EXP * LINE, |_, (out, input)| {
        forward_part(exact, out, input)
    });
}

#[multiversion(targets = "simd")]
fn forward_part<N: Real>(exact: bool, out: &mut [N], input: &[N]) {
    if exact {
        out.iter_mut()
            .zip(input)
            .for_each(|(out, x)| *out = N::narrow(exact_form(x.wide())[0]));
    } else {
        out.iter_mut()
            .zip(input)
            .for_each(|(out, x)| *out = N::narrow(tanh_form(x.wide())[0]));
    }
}

/// Multiplies the gradient by the derivatives of GELU at `input`.
pub(crate) fn backward<N: Real>(exact: bool, grad: &mut [N], input: &[N]) {
    cut(
        (By(grad, LINE), By(input, LINE)),
        EXP * LINE,
        |_, (grad, input)| backward_part(exact, grad, input),
    );
}

#[multiversion(targets = "simd")]
fn backward_part<N: Real>(exact: bool, grad: &mut [N], input: &[N]) {
    if exact {
        grad.iter_mut()
            .zip(input)
            .for_each(|(grad, x)| *grad = N::narrow(grad.wide() * exact_form(x.wide())[1]));
    } else {
        grad.iter_mut()
            .zip(input)
            .for_each(|(grad, x)| *grad = N::narrow(grad.wide() * tanh_form(x.wide())[1]));
    }
}

/// Like [`backward`], and also turns the input into the values.
pub(crate) fn backward_and_forward<N: Real>(exact: bool, grad: &mut [N], input: &mut [N]) {
    cut(
        (By(grad, LINE), By(input, LINE)),
        EXP * LINE,
        |_, (grad, input)| backward_and_forward_part(exact, grad, input),
    );
}

#[multiversion(targets = "simd")]
fn backward_and_forward_part<N: Real>(exact: bool, grad: &mut [N], input: &mut [N]) {
    let pairs = grad.iter_mut().zip(input);
    if exact {
        pairs.for_each(|(grad, x)| apply(grad, x, exact_form(x.wide())));
    } else {
        pairs.for_each(|(grad, x)| apply(grad, x, tanh_form(x.wide())));
    }
}

#[inline(always)]
fn apply<N: Real>(grad: &mut N, x: &mut N, [value, derivative]: [f32; 2]) {
    *grad = N::narrow(grad.wide() * derivative);
    *x = N::narrow(value);
}
