//! The product of one row and a matrix. It takes as long as reading the matrix, so nothing is packed.

use multiversion::multiversion;

use super::lanes::dots;
use super::matmul::Start;
use super::matrix::Matrix;
use super::parts::{By, cut};
use super::real::Real;

/// The columns that a thread adds up at a time, so that they stay in the first-level cache.
const COLUMNS: usize = 1024;

/// How many scalar products run side by side. One alone would wait for its own sums.
const BESIDE: usize = 4;

/// `out = start + row matrix`. The numbers of the matrix are widened to `f32`, if they have 16 bits.
pub(crate) fn vector_product<N: Real>(out: &mut [f32], start: Start<'_>, row: &[f32], matrix: Matrix<'_, N>) {
    if matrix.is_turned() {
        cut(By(out, 1), row.len(), |first, out| {
            by_columns(out, start.from(first), row, matrix, first)
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
fn by_columns<N: Real>(out: &mut [f32], start: Start<'_>, row: &[f32], matrix: Matrix<'_, N>, first: usize) {
    let column = |index: usize| &matrix.row(first + index)[..row.len()];
    let (groups, rest) = out.as_chunks_mut::<BESIDE>();
    let done = groups.len() * BESIDE;
    for (group, out) in groups.iter_mut().enumerate() {
        let at = group * BESIDE;
        let sums = dots(
            row,
            std::array::from_fn::<_, BESIDE, _>(|index| column(at + index)),
        );
        begin(out, start.from(at), sums);
    }
    for (index, out) in (done..).zip(rest) {
        begin(
            std::slice::from_mut(out),
            start.from(index),
            dots(row, [column(index)]),
        );
    }
}

/// `out = start + sums`.
#[inline(always)]
fn begin<const COUNT: usize>(out: &mut [f32], start: Start<'_>, sums: [f32; COUNT]) {
    for (index, (number, sum)) in out.iter_mut().zip(sums).enumerate() {
        *number = match start {
            Start::Zero => sum,
            Start::Row(before) => before[index] + sum,
            Start::Old => *number + sum,
        };
    }
}

/// For a matrix whose rows are contiguous.
#[multiversion(targets = "simd")]
fn add_rows<N: Real>(out: &mut [f32], start: Start<'_>, row: &[f32], matrix: Matrix<'_, N>, column: usize) {
    match start {
        Start::Zero => out.fill(0.0),
        Start::Row(before) => out.copy_from_slice(&before[..out.len()]),
        Start::Old => {}
    }
    for (index, &factor) in row.iter().enumerate() {
        let numbers = &matrix.row(index)[column..][..out.len()];
        for (sum, &number) in out.iter_mut().zip(numbers) {
            *sum = number.wide().mul_add(factor, *sum);
        }
    }
}
