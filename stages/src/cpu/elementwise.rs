//! Loops over single numbers, and over the columns of rows.

use multiversion::multiversion;

use super::parts::{By, cut};
use super::prefetch::LINE;
use super::real::Real;

/// `sum += addend`.
pub(crate) fn add<N: Real, M: Real>(sum: &mut [N], addend: &[M]) {
    cut((By(sum, LINE), By(addend, LINE)), LINE, |_, (sum, addend)| {
        add_part(sum, addend);
    });
}

/// As [`add`], by this thread alone.
pub(crate) fn add_here<N: Real, M: Real>(sum: &mut [N], addend: &[M]) {
    add_part(sum, addend);
}

#[multiversion(targets = "simd")]
fn add_part<N: Real, M: Real>(sum: &mut [N], addend: &[M]) {
    for (sum, addend) in sum.iter_mut().zip(addend) {
        *sum = N::narrow(sum.wide() + addend.wide());
    }
}

/// `product *= factor`.
pub(crate) fn multiply<N: Real>(product: &mut [N], factor: &[N]) {
    cut((By(product, LINE), By(factor, LINE)), LINE, |_, (product, factor)| {
        multiply_part(product, factor);
    });
}

#[multiversion(targets = "simd")]
fn multiply_part<N: Real>(product: &mut [N], factor: &[N]) {
    for (product, factor) in product.iter_mut().zip(factor) {
        *product = N::narrow(product.wide() * factor.wide());
    }
}

/// `sum = c + (b + (a + sum))`, where `addends` are `a`, `b`, `c`: at most three at once, so that the sum is
/// read and written once.
pub(crate) fn add_in_turn(sum: &mut [f32], addends: &[&[f32]]) {
    match addends {
        [] => {}
        [a] => add(sum, a),
        [a, b] => cut(((By(sum, LINE), By(*a, LINE)), By(*b, LINE)), LINE, |_, ((sum, a), b)| {
            add_two_part(sum, a, b)
        }),
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
pub(crate) fn add_into<N: Real, M: Real, L: Real>(out: &mut [N], a: &[M], b: &[L]) {
    for ((out, a), b) in out.iter_mut().zip(a).zip(b) {
        *out = N::narrow(a.wide() + b.wide());
    }
}

/// Adds all rows to `sum`, in order. The threads share the columns.
pub(crate) fn add_rows<N: Real>(sum: &mut [f32], rows: &[N]) {
    let width = sum.len();
    let weight = LINE * (rows.len() / width);
    cut(By(sum, LINE), weight, |first, sum| {
        add_columns(sum, rows, width, first * LINE);
    });
}

/// Adds the columns of all rows, from column `first` on.
#[multiversion(targets = "simd")]
fn add_columns<N: Real>(sum: &mut [f32], rows: &[N], width: usize, first: usize) {
    for row in rows.chunks_exact(width) {
        for (sum, number) in sum.iter_mut().zip(&row[first..]) {
            *sum += number.wide();
        }
    }
}
