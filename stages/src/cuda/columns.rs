//! Some columns of matrices.

use std::ops::Range;

use super::launch::{args, kernel};
use super::{Gpu, Grid, Ptr};
use crate::device::DType;
use crate::error::Result;

/// Consecutive columns of a matrix, from one on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Columns {
    at: Ptr,
    /// The numbers of a row.
    width: usize,
    start: usize,
}

impl Columns {
    /// The columns from `start` on of a matrix at this address.
    pub(crate) fn new(at: Ptr, width: usize, start: usize) -> Self {
        Self { at, width, start }
    }

    /// All columns.
    pub(crate) fn all(at: Ptr, width: usize) -> Self {
        Self::new(at, width, 0)
    }
}

impl Gpu {
    /// Copies a matrix of `[rows, columns]` numbers, times `scale`.
    pub(crate) fn copy_columns(
        &self,
        dtype: DType,
        to: Columns,
        from: Columns,
        [rows, columns]: [usize; 2],
        scale: f32,
    ) -> Result<()> {
        if columns == 0 {
            return Ok(());
        }
        let args = args![to.at, to.width, to.start, from.at, from.width, from.start, columns, scale];
        self.launch(kernel!(dtype, "copy_columns"), Grid::of_rows(rows, columns), &args)
    }

    /// Copies these columns of a matrix, of `rows` rows of `width` numbers, to one that has no others.
    pub(crate) fn gather_columns(
        &self,
        dtype: DType,
        to: Ptr,
        (from, width): (Ptr, usize),
        rows: usize,
        ranges: &[Range<usize>],
    ) -> Result<()> {
        each_range(ranges, |start, all, range| {
            let (to, from) = (Columns::new(to, all, start), Columns::new(from, width, range.start));
            self.copy_columns(dtype, to, from, [rows, range.len()], 1.0)
        })
    }

    /// Copies all columns of a matrix to these columns of another one, as [`Gpu::gather_columns`] does the
    /// other way.
    pub(crate) fn scatter_columns(
        &self,
        dtype: DType,
        (to, width): (Ptr, usize),
        from: Ptr,
        rows: usize,
        ranges: &[Range<usize>],
    ) -> Result<()> {
        each_range(ranges, |start, all, range| {
            let (to, from) = (Columns::new(to, width, range.start), Columns::new(from, all, start));
            self.copy_columns(dtype, to, from, [rows, range.len()], 1.0)
        })
    }
}

/// Calls `copy` with each range, its start among the places of all ranges, and the number of these.
fn each_range(
    ranges: &[Range<usize>],
    copy: impl Fn(usize, usize, &Range<usize>) -> Result<()>,
) -> Result<()> {
    let all = ranges.iter().map(Range::len).sum();
    let mut start = 0;
    for range in ranges {
        copy(start, all, range)?;
        start += range.len();
    }
    Ok(())
}
