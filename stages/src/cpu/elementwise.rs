//! Loops over single numbers, and over the columns of rows.

use multiversion::multiversion;

use super::parts::{By, cut};
use super::prefetch::LINE;

/// `sum += addend`.
pub(crate) fn add(sum: &mut [f32], addend: &[f32]) {
    cut((By(sum, LINE), By(addend, LINE)), LINE, |_, (sum, addend)| {
        add_part(sum, addend);
    });
}

#[multiversion(targets = "simd")]
fn add_part(sum: &mut [f32], addend: &[f32]) {
    for (sum, &addend) in sum.iter_mut().zip(addend) {
        *sum += addend;
    }
}

/// `sum = c + (b + (a + sum))`, where `addends` are `a`, `b`, `c`: at most three at once, so that the sum is
/// read and written once.
pub(crate) fn add_in_turn(sum: &mut [f32], addends: &[&[f32]]) {
    match addends {
        [] => {}
        [a] => add(sum, a),
        [a, b] => cut(
            ((By(sum, LINE), By(*a, LINE)), By(*b, LINE)),
            LINE,
            |_, ((sum, a), b)| add_two_part(sum, a, b),
        ),
        [a, b, c, rest @ ..] => {
            let rows = ((By(&mut *sum, LINE), By(*a, LINE)), (By(*b, LINE), By(*c, LINE)));
            cut(rows, LINE, |_, ((sum, a), (b, c))| add_three_part(sum, a, b, c));
            add_in_turn(sum, rest);
        }
    }
}

#[multiversion(targets = "simd")]
fn add_two_part(sum: &mut [f32], a: &[f32], b: &[f32]) {
    for ((sum, &a), &b) in sum.iter_mut().zip(a).zip(b) {
        *sum = b + (a + *sum);
    }
}

#[multiversion(targets = "simd")]
fn add_three_part(sum: &mut [f32], a: &[f32], b: &[f32], c: &[f32]) {
    for (((sum, &a), &b), &c) in sum.iter_mut().zip(a).zip(b).zip(c) {
        *sum = c + (b + (a + *sum));
    }
}

/// Sets each number, and the one in the same place in `bytes`, to the sum of both.
#[multiversion(targets = "simd")]
pub(crate) fn add_both(numbers: &mut [f32], bytes: &mut [[u8; 4]]) {
    for (number, bytes) in numbers.iter_mut().zip(bytes) {
        *number += f32::from_ne_bytes(*bytes);
        *bytes = number.to_ne_bytes();
    }
}

/// Adds numbers to those in `bytes`.
#[multiversion(targets = "simd")]
pub(crate) fn add_to_bytes(bytes: &mut [[u8; 4]], numbers: &[f32]) {
    for (bytes, number) in bytes.iter_mut().zip(numbers) {
        *bytes = (f32::from_ne_bytes(*bytes) + number).to_ne_bytes();
    }
}

/// `out = a + b`, for one row.
#[multiversion(targets = "simd")]
pub(crate) fn add_into(out: &mut [f32], a: &[f32], b: &[f32]) {
    for ((out, &a), &b) in out.iter_mut().zip(a).zip(b) {
        *out = a + b;
    }
}

/// Sets negative numbers to zero. NaN stays.
pub(crate) fn relu(numbers: &mut [f32]) {
    cut(By(numbers, LINE), LINE, |_, numbers| relu_part(numbers));
}

#[multiversion(targets = "simd")]
fn relu_part(numbers: &mut [f32]) {
    for number in numbers {
        *number = if *number < 0.0 { 0.0 } else { *number };
    }
}

/// Sets the gradient to zero where the output of ReLU is not positive.
pub(crate) fn relu_grad(grad: &mut [f32], output: &[f32]) {
    cut((By(grad, LINE), By(output, LINE)), LINE, |_, (grad, output)| {
        relu_grad_part(grad, output);
    });
}

#[multiversion(targets = "simd")]
fn relu_grad_part(grad: &mut [f32], output: &[f32]) {
    for (grad, &output) in grad.iter_mut().zip(output) {
        *grad = if output > 0.0 { *grad } else { 0.0 };
    }
}

/// Adds all rows to `sum`, in order. The threads share the columns.
pub(crate) fn add_rows(sum: &mut [f32], rows: &[f32]) {
    let width = sum.len();
    let weight = LINE * (rows.len() / width);
    cut(By(sum, LINE), weight, |first, sum| {
        add_columns(sum, rows, width, first * LINE);
    });
}

/// Adds the columns of all rows, from column `first` on.
#[multiversion(targets = "simd")]
fn add_columns(sum: &mut [f32], rows: &[f32], width: usize, first: usize) {
    for row in rows.chunks_exact(width) {
        for (sum, &number) in sum.iter_mut().zip(&row[first..]) {
            *sum += number;
        }
    }
}
