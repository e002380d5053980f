//! The product of one row and a matrix. It takes as long as reading the matrix, so nothing is packed.

use multiversion::multiversion;

use super::lanes::{LANES, fold};
use super::matmul::Start;
use super::matrix::Matrix;
use super::parts::{By, cut};
use super::real::Real;

/// The columns that a thread adds up at a time, so that they stay in the first-level cache.
const COLUMNS: usize = 1024;

/// How many groups of lanes a column is added up in. A group alone would wait for its own sums.
const GROUPS: usize = 4;

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
    for (column, number) in out.iter_mut().enumerate() {
        let sum = dot(row, &matrix.row(first + column)[..row.len()]);
        *number = match start {
            Start::Zero => sum,
            Start::Row(before) => before[column] + sum,
            Start::Old => *number + sum,
        };
    }
}

/// The scalar product of two slices of one length. Its order is the same for all number formats.
#[inline(always)]
fn dot<N: Real>(row: &[f32], column: &[N]) -> f32 {
    let mut lanes = [[0.0; LANES]; GROUPS];
    let ((row, row_rest), (column, column_rest)) = (row.as_chunks::<LANES>(), column.as_chunks::<LANES>());
    let ((row, row_end), (column, column_end)) = (row.as_chunks::<GROUPS>(), column.as_chunks::<GROUPS>());
    for (x, y) in row.iter().zip(column) {
        for group in 0..GROUPS {
            for lane in 0..LANES {
                let sum = &mut lanes[group][lane];
                *sum = x[group][lane].mul_add(y[group][lane].wide(), *sum);
            }
        }
    }
    let [mut sums, others @ ..] = lanes;
    for (x, y) in row_end.iter().zip(column_end) {
        for lane in 0..LANES {
            sums[lane] = x[lane].mul_add(y[lane].wide(), sums[lane]);
        }
    }
    for other in others {
        for lane in 0..LANES {
            sums[lane] += other[lane];
        }
    }
    let mut total = fold(sums);
    for (x, y) in row_rest.iter().zip(column_rest) {
        total = x.mul_add(y.wide(), total);
    }
    total
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
