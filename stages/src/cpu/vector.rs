//! The product of one row and a matrix. It takes as long as reading the matrix, so nothing is packed.

use multiversion::multiversion;

use super::lanes::dot;
use super::matmul::Start;
use super::matrix::Matrix;
use super::parts::{By, cut};

/// The columns that a thread adds up at a time, so that they stay in the first-level cache.
const COLUMNS: usize = 1024;

/// `out = start + row matrix`.
pub(crate) fn vector_product(out: &mut [f32], start: Start<'_>, row: &[f32], matrix: Matrix<'_>) {
    if matrix.is_turned() {
        cut(By(out, 1), row.len(), |first, out| {
            dots(out, start.from(first), row, matrix, first)
        });
    } else {
        let weight = row.len() * COLUMNS;
        cut(By(out, COLUMNS), weight, |first, out| {
            for (index, out) in out.chunks_mut(COLUMNS).enumerate() {
                let column = (first + index) * COLUMNS;
                add_rows(out, start.from(column), row, matrix, column);
            }
        });
    }
}

/// For a matrix whose columns are contiguous.
#[multiversion(targets = "simd")]
fn dots(out: &mut [f32], start: Start<'_>, row: &[f32], matrix: Matrix<'_>, first: usize) {
    for (column, number) in out.iter_mut().enumerate() {
        let sum = dot(row, &matrix.row(first + column)[..row.len()]);
        *number = match start {
            Start::Zero => sum,
            Start::Row(before) => before[column] + sum,
            Start::Old => *number + sum,
        };
    }
}

/// For a matrix whose rows are contiguous.
#[multiversion(targets = "simd")]
fn add_rows(out: &mut [f32], start: Start<'_>, row: &[f32], matrix: Matrix<'_>, column: usize) {
    match start {
        Start::Zero => out.fill(0.0),
        Start::Row(before) => out.copy_from_slice(&before[..out.len()]),
        Start::Old => {}
    }
    for (index, &factor) in row.iter().enumerate() {
        let numbers = &matrix.row(index)[column..][..out.len()];
        for (sum, &number) in out.iter_mut().zip(numbers) {
            *sum = number.mul_add(factor, *sum);
        }
    }
}
