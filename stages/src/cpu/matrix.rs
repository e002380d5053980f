//! The operands of products: views of numbers.

use std::ops::Range;

use super::prefetch::{LINE, Lines};

/// A view of a slice as a matrix. Its rows or its columns are contiguous.
#[derive(Clone, Copy)]
pub(crate) struct Matrix<'a, N = f32> {
    pub(crate) numbers: &'a [N],
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    /// The distance from one row to the next; if `turned`, from one column to the next.
    pub(crate) stride: usize,
    /// Whether the columns are contiguous instead of the rows (a transposed matrix).
    pub(crate) turned: bool,
}

impl<'a, N: Copy> Matrix<'a, N> {
    /// The slice as contiguous rows of `columns` numbers.
    pub(crate) fn new(numbers: &'a [N], columns: usize) -> Self {
        Self { numbers, rows: numbers.len() / columns, columns, stride: columns, turned: false }
    }

    /// The slice as rows of `columns` numbers that begin `stride` apart.
    pub(crate) fn strided(numbers: &'a [N], [rows, columns]: [usize; 2], stride: usize) -> Self {
        Self { numbers, rows, columns, stride, turned: false }
    }

    /// The transpose: the same numbers with rows and columns exchanged.
    pub(crate) fn t(self) -> Self {
        Self { rows: self.columns, columns: self.rows, turned: !self.turned, ..self }
    }

    /// The numbers in memory order.
    pub(crate) fn numbers(self) -> &'a [N] {
        self.numbers
    }

    /// A matrix of the same form with other numbers.
    pub(crate) fn with_numbers<M>(self, numbers: &[M]) -> Matrix<'_, M> {
        debug_assert_eq!(numbers.len(), self.numbers.len());
        let Self { rows, columns, stride, turned, .. } = self;
        Matrix { numbers, rows, columns, stride, turned }
    }

    /// Some rows of the matrix.
    pub(crate) fn part(self, rows: Range<usize>) -> Self {
        let step = if self.turned { 1 } else { self.stride };
        Self { numbers: &self.numbers[rows.start * step..], rows: rows.len(), ..self }
    }

    /// The number of rows.
    pub(crate) fn rows(self) -> usize {
        self.rows
    }

    /// Whether the columns are contiguous instead of the rows.
    pub(crate) fn is_turned(self) -> bool {
        self.turned
    }

    /// A contiguous row; of a transposed matrix, a contiguous column.
    #[inline(always)]
    pub(crate) fn row(self, row: usize) -> &'a [N] {
        &self.numbers[row * self.stride..]
    }
}

impl<'a> Matrix<'a> {
    /// The memory of these rows and columns. For a matrix whose rows are contiguous.
    #[inline(always)]
    pub(crate) fn lines(self, rows: Range<usize>, columns: &Range<usize>) -> Lines<'a> {
        Lines {
            numbers: self.numbers,
            start: rows.start * self.stride + columns.start,
            stride: self.stride,
            rows: rows.len(),
            lines: columns.len() / LINE,
        }
    }
}
