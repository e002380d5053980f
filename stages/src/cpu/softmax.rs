//! Softmax of rows.

use multiversion::multiversion;

use super::lanes::{self, LANES};
use super::math::exp;

/// Replaces every number of the row by `exp(number - shift)` and returns their sum.
#[inline(always)]
pub(crate) fn exp_and_sum(row: &mut [f32], shift: f32) -> f32 {
    let mut sums = [0.0; LANES];
    let (chunks, rest) = row.as_chunks_mut::<LANES>();
    for chunk in chunks {
        for lane in 0..LANES {
            chunk[lane] = exp(chunk[lane] - shift);
            sums[lane] += chunk[lane];
        }
    }
    let mut total = lanes::fold(sums);
    for number in rest {
        *number = exp(*number - shift);
        total += *number;
    }
    total
}

/// Turns a row of logits into probabilities, less `minus`. Returns the largest logit, and the logarithm of
/// the sum of `exp(logit - largest)`.
#[multiversion(targets = "simd")]
pub(crate) fn probabilities(row: &mut [f32], minus: f32) -> (f32, f32) {
    let largest = lanes::max(row);
    let total = exp_and_sum(row, largest);
    let scale = 1.0 / total;
    for number in row.iter_mut() {
        *number = *number * scale - minus;
    }
    (largest, total.ln())
}

/// Turns the gradient of a row of probabilities into the gradient of their logits.
#[multiversion(targets = "simd")]
pub(crate) fn gradient(grad: &mut [f32], probabilities: &[f32]) {
    let mean = lanes::dot(grad, probabilities);
    for (grad, share) in grad.iter_mut().zip(probabilities) {
        *grad = (*grad - mean) * share;
    }
}

/// The sum of the distances `number - from`.
#[multiversion(targets = "simd")]
pub(crate) fn sum_from(row: &[f32], from: f32) -> f32 {
    let mut sums = [0.0; LANES];
    let (chunks, rest) = row.as_chunks::<LANES>();
    for chunk in chunks {
        for lane in 0..LANES {
            sums[lane] += chunk[lane] - from;
        }
    }
    let mut total = lanes::fold(sums);
    for number in rest {
        total += number - from;
    }
    total
}
