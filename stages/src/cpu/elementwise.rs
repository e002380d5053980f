//! Loops over numbers one by one, and over the columns of rows.

use multiversion::multiversion;

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

/// Adds all rows to `sum`, the first row first.
#[multiversion(targets = "simd")]
pub(crate) fn add_rows(sum: &mut [f32], rows: &[f32]) {
    for row in rows.chunks_exact(sum.len()) {
        for (sum, &number) in sum.iter_mut().zip(row) {
            *sum += number;
        }
    }
}
