//! Sums over many numbers. Their order depends only on how many there are.

use smallvec::SmallVec;

use super::launch::{Arg, args};
use super::{Gpu, Grid, Ptr};
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

    /// In how many slices of the rows [`Gpu::sum_slices`] adds up columns.
    pub(crate) fn slices(&self, rows: usize, columns: usize) -> usize {
        rows.div_ceil(self.slice(rows, columns))
    }

    /// Launches a kernel that writes the sums of the columns of each slice to `f32`
    /// `partials[slices, columns]`. Each of the other addresses has `[rows, columns]`.
    pub(crate) fn sum_slices<const N: usize>(
        &self,
        kernel: &'static str,
        partials: Ptr,
        at: [Ptr; N],
        [rows, columns]: [usize; 2],
    ) -> Result<()> {
        let slices = self.slices(rows, columns) as u32;
        let grid =
            Grid { blocks: [columns.div_ceil(COLUMNS) as u32, slices, 1], threads: THREADS, shared: 0 };
        let addresses = [partials].into_iter().chain(at).map(Arg::from);
        let sizes = args![rows, columns, self.slice(rows, columns)];
        let args: SmallVec<[Arg; 6]> = addresses.chain(sizes).collect();
        self.launch(kernel, grid, &args)
    }

    /// Adds to `f32` `out[columns]` the sums of all slices.
    pub(crate) fn add_slices(&self, out: Ptr, partials: Ptr, [slices, columns]: [usize; 2]) -> Result<()> {
        let args = args![out, partials, slices, columns];
        self.launch("add_rows_f32", Grid::row(columns.div_ceil(32), 1024), &args)
    }

    /// `f64` `out[columns] = ` the sum of `input[rows, columns]` over rows. `out` may be pinned host memory.
    pub(crate) fn sum_doubles(&self, out: Ptr, input: Ptr, rows: usize, columns: usize) -> Result<()> {
        let args = args![out, input, rows];
        self.launch("sum_doubles", Grid::row(columns, 1024), &args)
    }
}
