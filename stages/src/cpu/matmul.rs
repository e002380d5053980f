//! Matrix products by the `gemm` crate on views of `f32` slices: rows may lie apart, as attention's heads do.

use gemm::Parallelism;
use multiversion::multiversion;

use super::lanes::LANES;
use crate::pool::Buffer;

/// A matrix that is read: a view of a slice.
#[derive(Clone, Copy)]
pub(crate) struct Matrix<'a> {
    numbers: &'a [f32],
    rows: usize,
    columns: usize,
    row_stride: usize,
    column_stride: usize,
}

/// A matrix that is written: a view of a slice, rows not overlapping.
pub(crate) struct MatrixMut<'a> {
    numbers: &'a mut [f32],
    rows: usize,
    columns: usize,
    row_stride: usize,
}

/// Whether a view of this size lies in a slice of `length`.
fn fits(length: usize, rows: usize, columns: usize, row_stride: usize) -> bool {
    rows == 0 || columns == 0 || (rows - 1) * row_stride + columns <= length
}

impl<'a> Matrix<'a> {
    /// The slice as rows of `columns` numbers, one after the other.
    pub(crate) fn new(numbers: &'a [f32], columns: usize) -> Self {
        Self::strided(numbers, numbers.len() / columns, columns, columns)
    }

    /// Rows of `columns` numbers that start `row_stride` apart.
    pub(crate) fn strided(numbers: &'a [f32], rows: usize, columns: usize, row_stride: usize) -> Self {
        assert!(
            fits(numbers.len(), rows, columns, row_stride),
            "the view lies inside the slice"
        );
        Self {
            numbers,
            rows,
            columns,
            row_stride,
            column_stride: 1,
        }
    }

    /// The transpose: the same numbers, seen the other way.
    pub(crate) fn t(self) -> Self {
        Self {
            rows: self.columns,
            columns: self.rows,
            row_stride: self.column_stride,
            column_stride: self.row_stride,
            ..self
        }
    }
}

impl<'a> MatrixMut<'a> {
    /// The slice as rows of `columns` numbers, one after the other.
    pub(crate) fn new(numbers: &'a mut [f32], columns: usize) -> Self {
        let rows = numbers.len() / columns;
        Self::strided(numbers, rows, columns, columns)
    }

    /// Rows of `columns` numbers that start `row_stride` apart.
    pub(crate) fn strided(numbers: &'a mut [f32], rows: usize, columns: usize, row_stride: usize) -> Self {
        assert!(
            fits(numbers.len(), rows, columns, row_stride),
            "the view lies inside the slice"
        );
        assert!(columns <= row_stride, "rows do not overlap");
        Self {
            numbers,
            rows,
            columns,
            row_stride,
        }
    }
}

/// What becomes of the numbers that the product is written over.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Old {
    /// They are overwritten.
    Drop,
    /// The product is added to them.
    Keep,
}

/// `out = scale * a b`, or that added to what `out` holds. One thread; the same bits for the same input.
pub(crate) fn matmul(out: MatrixMut<'_>, old: Old, scale: f32, a: Matrix<'_>, b: Matrix<'_>) {
    if b.column_stride == 1 {
        return gemm(out, old, scale, a, b);
    }
    // The library packs such a matrix number by number; turning it in blocks first is faster.
    let mut turned = Buffer::pooled(b.rows * b.columns);
    turn(&mut turned, b.numbers, [b.columns, b.rows], b.column_stride);
    gemm(out, old, scale, a, Matrix::new(&turned, b.columns));
}

/// Turns `rows` rows of `columns` numbers, `stride` apart, into `columns` rows.
#[multiversion(targets = "simd")]
fn turn(to: &mut [f32], from: &[f32], [rows, columns]: [usize; 2], stride: usize) {
    for row in (0..rows).step_by(LANES) {
        let lines: [&[f32]; LANES] = std::array::from_fn(|line| {
            let line = (row + line).min(rows - 1);
            &from[line * stride..][..columns]
        });
        let width = LANES.min(rows - row);
        for (column, to) in to.chunks_exact_mut(rows).enumerate() {
            let lanes: [f32; LANES] = std::array::from_fn(|lane| lines[lane][column]);
            to[row..row + width].copy_from_slice(&lanes[..width]);
        }
    }
}

#[allow(unsafe_code)]
fn gemm(out: MatrixMut<'_>, old: Old, scale: f32, a: Matrix<'_>, b: Matrix<'_>) {
    assert_eq!(
        (out.rows, out.columns),
        (a.rows, b.columns),
        "the product fills the output"
    );
    assert_eq!(a.columns, b.rows, "as many columns as rows");
    // SAFETY: the constructors checked that all three views lie inside their slices, the shapes agree (just asserted),
    // and `out` is borrowed mutably, so that it overlaps neither `a` nor `b` and no row of it overlaps another.
    unsafe {
        gemm::gemm(
            out.rows,
            out.columns,
            a.columns,
            out.numbers.as_mut_ptr(),
            1,
            out.row_stride as isize,
            old == Old::Keep,
            a.numbers.as_ptr(),
            a.column_stride as isize,
            a.row_stride as isize,
            b.numbers.as_ptr(),
            b.column_stride as isize,
            b.row_stride as isize,
            1.0,
            scale,
            false,
            false,
            false,
            Parallelism::None,
        );
    }
}
