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

/// How many columns are added up before their lanes are.
const BLOCK: usize = 64;

/// The sums of one column, in lanes.
type Lanes = [f32; LANES];

/// `out = start + row matrix`. The numbers of the matrix are widened to `f32`, if they have 16 bits.
pub(crate) fn vector_product<N: Real>(out: &mut [f32], start: Start<'_>, row: &[f32], matrix: Matrix<'_, N>) {
    if matrix.is_turned() {
        cut(By(out, 1), row.len(), |first, out| by_columns(out, start.from(first), row, matrix, first));
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

/// For a matrix whose columns are contiguous. The order of addition is the same for all number formats.
fn by_columns<N: Real>(out: &mut [f32], start: Start<'_>, row: &[f32], matrix: Matrix<'_, N>, first: usize) {
    let mut lanes = [[0.0; LANES]; BLOCK];
    for (index, out) in out.chunks_mut(BLOCK).enumerate() {
        let (at, lanes) = (index * BLOCK, &mut lanes[..out.len()]);
        add_products(lanes, row, matrix, first + at);
        add_lanes(out, start.from(at), lanes);
        if !row.len().is_multiple_of(LANES) {
            add_rest(out, row, matrix, first + at);
        }
    }
}

/// Fills the lanes of some columns. What follows the last whole chunk of the row is left out.
#[multiversion(targets = "simd")]
fn add_products<N: Real>(lanes: &mut [Lanes], row: &[f32], matrix: Matrix<'_, N>, first: usize) {
    let row = row.as_chunks::<LANES>().0;
    let (groups, end) = row.as_chunks::<GROUPS>();
    for (column, lanes) in lanes.iter_mut().enumerate() {
        let column = &matrix.row(first + column).as_chunks::<LANES>().0[..row.len()];
        let (columns, column_end) = column.as_chunks::<GROUPS>();
        let [mut a, mut b, mut c, mut d] = [[0.0; LANES]; GROUPS];
        for (x, y) in groups.iter().zip(columns) {
            add_chunk(&mut a, &x[0], &y[0]);
            add_chunk(&mut b, &x[1], &y[1]);
            add_chunk(&mut c, &x[2], &y[2]);
            add_chunk(&mut d, &x[3], &y[3]);
        }
        for (x, y) in end.iter().zip(column_end) {
            add_chunk(&mut a, x, y);
        }
        for lane in 0..LANES {
            lanes[lane] = (a[lane] + b[lane]) + (c[lane] + d[lane]);
        }
    }
}

#[inline(always)]
fn add_chunk<N: Real>(sums: &mut Lanes, x: &[f32; LANES], y: &[N; LANES]) {
    for lane in 0..LANES {
        sums[lane] = x[lane].mul_add(y[lane].wide(), sums[lane]);
    }
}

#[multiversion(targets = "simd")]
fn add_lanes(out: &mut [f32], start: Start<'_>, lanes: &[Lanes]) {
    for (column, (number, lanes)) in out.iter_mut().zip(lanes).enumerate() {
        let sum = fold(*lanes);
        *number = match start {
            Start::Zero => sum,
            Start::Row(before) => before[column] + sum,
            Start::Old => *number + sum,
        };
    }
}

#[multiversion(targets = "simd")]
fn add_rest<N: Real>(out: &mut [f32], row: &[f32], matrix: Matrix<'_, N>, first: usize) {
    let rest = row.len() / LANES * LANES..row.len();
    for (column, number) in out.iter_mut().enumerate() {
        let column = &matrix.row(first + column)[rest.clone()];
        for (x, y) in row[rest.clone()].iter().zip(column) {
            *number = x.mul_add(y.wide(), *number);
        }
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
