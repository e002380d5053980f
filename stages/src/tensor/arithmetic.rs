//! Sums and products of tensors, and some of their rows and columns.

use std::ops::Range;

use super::{Bytes, Tensor};
use crate::cpu::real::{Real, in_format};
use crate::cpu::{columns, elementwise, parts};
use crate::cuda::launch::{args, kernel};
use crate::cuda::{Columns, Grid, Ptr};
use crate::device::DType;
use crate::error::Result;

/// A row of `f32`, in the same place as a tensor.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Row<'a> {
    OnHost(&'a [f32]),
    OnGpu(Ptr),
}

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

    /// As [`Tensor::add`]. Nothing is written to device memory that another thread may still read.
    pub(crate) fn add_apart(&mut self, other: &Self) -> Result<()> {
        let Some(gpu) = other.gpu()? else {
            return self.add(other);
        };
        let sum = self.beside(self.dims())?;
        gpu.add(other.dtype(), sum.at(), self.at(), other.at(), other.shape().count())?;
        *self = sum;
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

    /// Some of the rows, `[rows, width]`.
    pub(crate) fn rows(&self, range: Range<usize>) -> Result<Self> {
        let width = self.shape().last();
        let mut part = self.beside(&[range.len(), width])?;
        if part.shape().count() == 0 {
            return Ok(part);
        }
        if let Some(gpu) = self.gpu()? {
            let from = self.at().offset(range.start * width * self.dtype().bytes());
            gpu.copy(part.at(), from, part.bytes() as usize)?;
            return Ok(part);
        }
        in_format!(self.dtype(), N => {
            let from = &self.numbers::<N>()[range.start * width..range.end * width];
            parts::copy(from, part.numbers_mut::<N>());
        });
        Ok(part)
    }

    /// Writes these rows: the first ones of `from`.
    pub(crate) fn put_rows(&mut self, range: Range<usize>, from: &Self) -> Result<()> {
        let width = self.shape().last();
        let count = range.len() * width;
        if count == 0 {
            return Ok(());
        }
        let first = range.start * width;
        if let Some(gpu) = from.gpu()? {
            let bytes = from.dtype().bytes();
            let to = self.at_mut(&gpu)?.offset(first * bytes);
            return gpu.copy(to, from.at(), count * bytes);
        }
        in_format!(from.dtype(), N => {
            let to = &mut self.numbers_mut::<N>()[first..first + count];
            parts::copy(&from.numbers::<N>()[..count], to);
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
            let (to, from) =
                (Columns::all(out.at(), range.len()), Columns::new(self.at(), width, range.start));
            gpu.copy_columns(self.dtype(), to, from, [self.shape().rows(), range.len()], scale)?;
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
            let to = Columns::new(self.at_mut(&gpu)?, width, range.start);
            let rows = from.shape().rows();
            let from_all = Columns::all(from.at(), range.len());
            return gpu.copy_columns(from.dtype(), to, from_all, [rows, range.len()], 1.0);
        }
        in_format!(from.dtype(), N => columns::put::<N>(self.numbers_mut(), width, range, from.numbers()));
        Ok(())
    }

    /// Adds `scale` times as many columns to some columns of all rows.
    pub(crate) fn add_columns(&mut self, range: Range<usize>, more: &Self, scale: f32) -> Result<()> {
        let width = self.shape().last();
        if let Some(gpu) = more.gpu()? {
            let args = args![self.at_mut(&gpu)?, more, width, range.start, range.len(), scale];
            let grid = Grid::of_rows(more.shape().rows(), more.shape().last());
            return gpu.launch(kernel!(more.dtype(), "add_columns"), grid, &args);
        }
        in_format!(more.dtype(), N => {
            columns::add::<N>(self.numbers_mut(), width, range, more.numbers(), scale);
        });
        Ok(())
    }

    /// These sums of `f32`, with a row added to each row, if it is given, in this format.
    pub(crate) fn rounded(mut self, dtype: DType, row: Option<Row<'_>>) -> Result<Self> {
        if let Some(gpu) = self.gpu()? {
            if dtype == DType::F32 && row.is_none() {
                return Ok(self);
            }
            let out = Self::on_gpu(&gpu, dtype, self.dims())?;
            let row = match row {
                Some(Row::OnGpu(row)) => row,
                Some(Row::OnHost(_)) => unreachable!("the row is in the tensor's place"),
                None => Ptr::NONE,
            };
            let (rows, width) = (self.shape().rows(), self.shape().last());
            let args = args![&out, &self, row, width];
            gpu.launch(kernel!(dtype, "round_sums"), Grid::of_rows(rows, width), &args)?;
            return Ok(out);
        }
        if let Some(Row::OnHost(row)) = row {
            let width = row.len();
            self.f32_mut().chunks_exact_mut(width).for_each(|sums| elementwise::add_here(sums, row));
        }
        if dtype == DType::F32 {
            return Ok(self);
        }
        let mut rounded = Self::on_host_in(dtype, self.dims())?;
        in_format!(dtype, N => {
            let pairs = rounded.numbers_mut::<N>().iter_mut().zip(self.f32());
            pairs.for_each(|(to, &from)| *to = N::narrow(from));
        });
        Ok(rounded)
    }
}
