//! What a product reads: a view of numbers.

use std::ops::Range;

use super::prefetch::{LINE, Lines};

/// A view of a slice in which rows or columns are contiguous.
#[derive(Clone, Copy)]
pub(crate) struct Matrix<'a> {
    pub(super) numbers: &'a [f32],
    pub(super) rows: usize,
    pub(super) columns: usize,
    /// From a row to the next; from a column to the next when turned.
    pub(super) stride: usize,
    /// Whether columns are contiguous, and not rows.
    pub(super) turned: bool,
}

impl<'a> Matrix<'a> {
    /// The slice as rows of `columns` numbers, one after the other.
    pub(crate) fn new(numbers: &'a [f32], columns: usize) -> Self {
        Self {
            numbers,
            rows: numbers.len() / columns,
            columns,
            stride: columns,
            turned: false,
        }
    }

    /// The transpose: the same numbers, seen the other way.
    pub(crate) fn t(self) -> Self {
        Self {
            rows: self.columns,
            columns: self.rows,
            turned: !self.turned,
            ..self
        }
    }

    /// These rows of it.
    pub(super) fn part(self, rows: Range<usize>) -> Self {
        let step = if self.turned { 1 } else { self.stride };
        Self {
            numbers: &self.numbers[rows.start * step..],
            rows: rows.len(),
            ..self
        }
    }

    /// The number of rows.
    pub(crate) fn rows(self) -> usize {
        self.rows
    }

    /// Whether columns are contiguous, and not rows.
    pub(crate) fn is_turned(self) -> bool {
        self.turned
    }

    /// A contiguous row; of a turned matrix, a column.
    #[inline(always)]
    pub(super) fn row(self, row: usize) -> &'a [f32] {
        &self.numbers[row * self.stride..]
    }

    /// The memory of these rows and columns of a matrix that is not turned.
    #[inline(always)]
    pub(super) fn lines(self, rows: Range<usize>, columns: &Range<usize>) -> Lines<'a> {
        Lines {
            numbers: self.numbers,
            start: rows.start * self.stride + columns.start,
            stride: self.stride,
            rows: rows.len(),
            lines: columns.len() / LINE,
        }
    }
}
