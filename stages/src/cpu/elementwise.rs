//! Loops over numbers one by one, and over the columns of rows.

use multiversion::multiversion;

use crate::rng;

/// `sum += addend`.
#[multiversion(targets = "simd")]
pub(crate) fn add(sum: &mut [f32], addend: &[f32]) {
    for (sum, &addend) in sum.iter_mut().zip(addend) {
        *sum += addend;
    }
}

/// `out = a + b`.
#[multiversion(targets = "simd")]
pub(crate) fn add_into(out: &mut [f32], a: &[f32], b: &[f32]) {
    for ((out, &a), &b) in out.iter_mut().zip(a).zip(b) {
        *out = a + b;
    }
}

/// Negative numbers become zero; NaN stays.
#[multiversion(targets = "simd")]
pub(crate) fn relu(numbers: &mut [f32]) {
    for number in numbers {
        *number = if *number < 0.0 { 0.0 } else { *number };
    }
}

/// The gradient becomes zero wherever the output of ReLU is not positive.
#[multiversion(targets = "simd")]
pub(crate) fn relu_grad(grad: &mut [f32], output: &[f32]) {
    for (grad, &output) in grad.iter_mut().zip(output) {
        *grad = if output > 0.0 { *grad } else { 0.0 };
    }
}

/// Writes `row` into every row of `rows`.
pub(crate) fn fill_rows(rows: &mut [f32], row: &[f32]) {
    for out in rows.chunks_exact_mut(row.len()) {
        out.copy_from_slice(row);
    }
}

/// Adds all rows to `sum`, the first row first.
#[multiversion(targets = "simd")]
pub(crate) fn add_rows(sum: &mut [f32], rows: &[f32]) {
    for row in rows.chunks_exact(sum.len()) {
        for (sum, &number) in sum.iter_mut().zip(row) {
            *sum += number;
        }
    }
}

/// Zeroes numbers with probability `rate` and divides the others by `1 - rate`; the draws are a function of the key, the
/// moment and the position.
#[multiversion(targets = "simd")]
pub(crate) fn dropout(numbers: &mut [f32], rate: f32, key: [u32; 2], moment: [u32; 3]) {
    let scale = 1.0 / (1.0 - rate);
    for (index, four) in numbers.chunks_mut(4).enumerate() {
        let words = rng::philox(key, [index as u32, moment[0], moment[1], moment[2]]);
        for (number, word) in four.iter_mut().zip(words) {
            *number = if rng::unit(word) < rate {
                0.0
            } else {
                *number * scale
            };
        }
    }
}
