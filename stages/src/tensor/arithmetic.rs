//! Sums and products of tensors, and some of their columns.

use std::ops::Range;

use super::Tensor;
use crate::cpu::real::in_format;
use crate::cpu::{columns, elementwise};
use crate::cuda::Grid;
use crate::cuda::launch::{args, kernel};
use crate::error::Result;

impl Tensor {
    /// Adds a tensor of the same shape in the same place, number by number.
    pub(crate) fn add(&mut self, other: &Self) -> Result<()> {
        if let Some(gpu) = other.gpu()? {
            let at = self.at_mut(&gpu)?;
            return gpu.add(other.dtype(), at, at, other.at(), other.shape().count());
        }
        in_format!(other.dtype(), N => elementwise::add(self.numbers_mut::<N>(), other.numbers::<N>()));
        Ok(())
    }

    /// Multiplies by a tensor of the same shape in the same place, number by number.
    pub(crate) fn multiply(&mut self, other: &Self) -> Result<()> {
        if let Some(gpu) = other.gpu()? {
            let at = self.at_mut(&gpu)?;
            return gpu.each(kernel!(other.dtype(), "multiply"), [at, other.at()], other.shape().count());
        }
        in_format!(other.dtype(), N => {
            elementwise::multiply(self.numbers_mut::<N>(), other.numbers::<N>());
        });
        Ok(())
    }

    /// Some columns of all rows, times `scale`.
    pub(crate) fn columns(&self, range: Range<usize>, scale: f32) -> Result<Self> {
        let width = self.shape().last();
        let mut out = self.beside(self.shape().with_last(range.len()).dims())?;
        if out.shape().count() == 0 {
            return Ok(out);
        }
        if let Some(gpu) = self.gpu()? {
            let args = args![&out, self, width, range.start, range.len(), scale];
            gpu.launch(kernel!(self.dtype(), "take_columns"), grid(&out), &args)?;
            return Ok(out);
        }
        in_format!(self.dtype(), N => {
            columns::take::<N>(out.numbers_mut(), self.numbers(), width, range, scale);
        });
        Ok(out)
    }

    /// Writes some columns of all rows.
    pub(crate) fn put_columns(&mut self, range: Range<usize>, from: &Self) -> Result<()> {
        if from.shape().count() == 0 {
            return Ok(());
        }
        let width = self.shape().last();
        if let Some(gpu) = from.gpu()? {
            let args = args![self.at_mut(&gpu)?, from, width, range.start, range.len()];
            return gpu.launch(kernel!(from.dtype(), "put_columns"), grid(from), &args);
        }
        in_format!(from.dtype(), N => columns::put::<N>(self.numbers_mut(), width, range, from.numbers()));
        Ok(())
    }

    /// Adds `scale` times as many columns to some columns of all rows.
    pub(crate) fn add_columns(&mut self, range: Range<usize>, more: &Self, scale: f32) -> Result<()> {
        let width = self.shape().last();
        if let Some(gpu) = more.gpu()? {
            let args = args![self.at_mut(&gpu)?, more, width, range.start, range.len(), scale];
            return gpu.launch(kernel!(more.dtype(), "add_columns"), grid(more), &args);
        }
        in_format!(more.dtype(), N => {
            columns::add::<N>(self.numbers_mut(), width, range, more.numbers(), scale);
        });
        Ok(())
    }
}

/// A grid for these columns.
fn grid(columns: &Tensor) -> Grid {
    Grid::of_rows(columns.shape().rows(), columns.shape().last())
}
