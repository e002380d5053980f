//! What a product reads: a view of numbers.

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
}
