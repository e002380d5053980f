//! Sums over many numbers. Their order depends only on how many there are.

use super::launch::{args, kernel};
use super::{Gpu, Grid, Ptr};
use crate::device::DType;
use crate::error::Result;

/// The columns that a block of `column_sums` adds up.
const COLUMNS: usize = 256;
/// The least rows of a slice.
const SLICE: usize = 64;
/// How many blocks of `column_sums` are on a multiprocessor.
const BLOCKS: usize = 4;
const THREADS: u32 = 256;

impl Gpu {
    /// `f32` `out[columns] = ` the sum of `input[rows, columns]` over rows.
    pub(crate) fn sum_rows(&self, out: Ptr, input: Ptr, rows: usize, columns: usize) -> Result<()> {
        let args = args![out, input, rows, columns];
        self.launch("sum_rows_f32", Grid::row(columns.div_ceil(32), 1024), &args)
    }

    /// How many rows a block of `column_sums` adds up.
    fn slice(&self, rows: usize, columns: usize) -> usize {
        let slices = (self.blocks(BLOCKS) / columns.div_ceil(COLUMNS)).max(1);
        rows.div_ceil(slices).max(SLICE)
    }

    /// The bytes of scratch memory that [`Gpu::add_column_sums`] needs.
    pub(crate) fn column_sums_scratch(&self, rows: usize, columns: usize) -> usize {
        rows.div_ceil(self.slice(rows, columns)) * columns * 4
    }

    /// Adds to `f32` `out[columns]` the sum of `input[rows, columns]` over rows.
    pub(crate) fn add_column_sums(
        &self,
        dtype: DType,
        out: Ptr,
        input: Ptr,
        rows: usize,
        columns: usize,
        scratch: Ptr,
    ) -> Result<()> {
        let slice = self.slice(rows, columns);
        let slices = rows.div_ceil(slice);
        let grid = Grid {
            blocks: [columns.div_ceil(COLUMNS) as u32, slices as u32, 1],
            threads: THREADS,
            shared: 0,
        };
        let args = args![scratch, input, rows, columns, slice];
        self.launch(kernel!(dtype, "column_sums"), grid, &args)?;
        let args = args![out, scratch, slices, columns];
        self.launch("add_rows_f32", Grid::row(columns.div_ceil(32), 1024), &args)
    }

    /// `f64` `out[columns] = ` the sum of `input[rows, columns]` over rows. `out` may be pinned host memory.
    pub(crate) fn sum_doubles(&self, out: Ptr, input: Ptr, rows: usize, columns: usize) -> Result<()> {
        let args = args![out, input, rows];
        self.launch("sum_doubles", Grid::row(columns, 1024), &args)
    }
}
