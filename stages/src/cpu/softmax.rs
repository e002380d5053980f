//! Softmax of rows.

use std::ops::Range;

use multiversion::multiversion;

use super::lanes::{self, LANES};
use super::math::exp;
use super::real::Real;

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
/// the sum of `exp(logit - largest)`, which is added up in this many groups of classes.
pub(crate) fn probabilities(row: &mut [f32], groups: usize, minus: f32) -> (f32, f32) {
    let largest = max(row);
    let classes = row.len();
    let total = by_tree(0..groups, &mut |group| {
        exp_and_sum_of(&mut row[group * classes / groups..(group + 1) * classes / groups], largest)
    });
    scale(row, 1.0 / total, minus);
    (largest, total.ln())
}

/// The largest number of the row.
#[multiversion(targets = "simd")]
pub(crate) fn max<N: Real>(row: &[N]) -> f32 {
    lanes::max(row)
}

/// As [`exp_and_sum`], for any caller.
#[multiversion(targets = "simd")]
pub(crate) fn exp_and_sum_of(row: &mut [f32], shift: f32) -> f32 {
    exp_and_sum(row, shift)
}

/// Multiplies the row by `scale` and subtracts `minus`.
#[multiversion(targets = "simd")]
pub(crate) fn scale(row: &mut [f32], scale: f32, minus: f32) {
    for number in row {
        *number = *number * scale - minus;
    }
}

/// The sum over these groups, by the tree. Their number is a power of two.
pub(crate) fn by_tree(groups: Range<usize>, sum: &mut impl FnMut(usize) -> f32) -> f32 {
    if groups.len() == 1 {
        return sum(groups.start);
    }
    let middle = groups.start + groups.len() / 2;
    by_tree(groups.start..middle, sum) + by_tree(middle..groups.end, sum)
}

/// Turns the gradient of a row of probabilities into the gradient of their logits.
#[multiversion(targets = "simd")]
pub(crate) fn gradient(grad: &mut [f32], probabilities: &[f32]) {
    let mean = lanes::dot(grad, probabilities);
    for (grad, share) in grad.iter_mut().zip(probabilities) {
        *grad = (*grad - mean) * share;
    }
}

/// The sum of the distances `number - from`, added up in this many groups of numbers.
pub(crate) fn sum_from(row: &[f32], groups: usize, from: f32) -> f32 {
    let count = row.len();
    by_tree(0..groups, &mut |group| {
        sum_of_group(&row[group * count / groups..(group + 1) * count / groups], from)
    })
}

/// As [`sum_from`], of one group.
#[multiversion(targets = "simd")]
pub(crate) fn sum_of_group(row: &[f32], from: f32) -> f32 {
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
