//! Some columns of rows.

use std::ops::Range;

use super::launch::{args, kernel};
use super::{Gpu, Grid, Ptr};
use crate::device::DType;
use crate::error::Result;

/// Which columns of rows: `[rows, width]`.
#[derive(Clone, Debug)]
pub(crate) struct Columns {
    pub(crate) rows: usize,
    pub(crate) width: usize,
    pub(crate) range: Range<usize>,
}

impl Gpu {
    /// Like [`crate::cpu::columns::take`].
    pub(crate) fn take_columns(
        &self,
        dtype: DType,
        out: Ptr,
        rows: Ptr,
        of: &Columns,
        scale: f32,
    ) -> Result<()> {
        self.columns(kernel!(dtype, "take_columns"), [out, rows], of, scale)
    }

    /// Like [`crate::cpu::columns::put`].
    pub(crate) fn put_columns(&self, dtype: DType, rows: Ptr, of: &Columns, from: Ptr) -> Result<()> {
        let args = args![rows, from, of.width, of.range.start, of.range.len()];
        let grid = Grid::of_rows(of.rows, of.range.len());
        self.launch(kernel!(dtype, "put_columns"), grid, &args)
    }

    /// Like [`crate::cpu::columns::add`].
    pub(crate) fn add_columns(
        &self,
        dtype: DType,
        rows: Ptr,
        of: &Columns,
        more: Ptr,
        scale: f32,
    ) -> Result<()> {
        self.columns(kernel!(dtype, "add_columns"), [rows, more], of, scale)
    }

    fn columns(&self, name: &'static str, [to, from]: [Ptr; 2], of: &Columns, scale: f32) -> Result<()> {
        let args = args![to, from, of.width, of.range.start, of.range.len(), scale];
        self.launch(name, Grid::of_rows(of.rows, of.range.len()), &args)
    }
}
