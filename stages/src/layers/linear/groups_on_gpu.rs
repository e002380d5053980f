//! The products of a matrix of weights on a GPU.
//!
//! A model whose sums are added up in shard groups has the same bits for any number of shards. For that, the
//! product of a group must be the same one, wherever its group is: cuBLASLt may compute a product of another
//! size in another order. So each group is multiplied by itself, as by a shard that has no other group. Such
//! a shard copies nothing. Otherwise a group's columns and rows are copied first.

use std::ops::Range;

use smallvec::SmallVec;

use super::divided::Side;
use crate::cpu::depth::DepthGroups;
use crate::cuda::{Gpu, Memory, Ptr};
use crate::device::DType;
use crate::error::Result;
use crate::tensor::Tensor;

/// Several groups of the inputs or of the outputs.
#[derive(Debug)]
pub(crate) struct Apart {
    pub(super) side: Side,
    /// The places of each.
    pub(super) groups: Vec<Vec<Range<usize>>>,
}

/// A matrix on a GPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct Matrix {
    pub(super) at: Ptr,
    pub(super) dtype: DType,
    pub(super) rows: usize,
    pub(super) columns: usize,
}

impl Apart {
    /// The groups of the inputs or of the outputs, if there are several.
    pub(super) fn of([inputs, outputs]: [Option<&DepthGroups>; 2]) -> Option<Self> {
        let (side, groups) = match (inputs, outputs) {
            (Some(inputs), _) => (Side::Inputs, inputs.ranges()),
            (None, Some(outputs)) => (Side::Outputs, outputs.ranges()),
            (None, None) => return None,
        };
        (groups.len() > 1).then_some(Self { side, groups })
    }

    /// Writes a tensor group by group: `make` writes the columns of a group to a matrix of these alone.
    pub(super) fn put_together(
        &self,
        gpu: &Gpu,
        out: &Tensor,
        mut make: impl FnMut(&[Range<usize>], Ptr) -> Result<()>,
    ) -> Result<()> {
        let out = Matrix::of(out);
        for places in &self.groups {
            let part = gpu.memory_of(out.rows * width(places) * out.dtype.bytes())?;
            make(places, part.at())?;
            out.put_columns(gpu, places, &part)?;
        }
        Ok(())
    }

    /// The sum over all groups, by the tree: `make` writes the sum of a group, in `f32`.
    pub(super) fn add_up(
        &self,
        empty: impl Fn() -> Result<Tensor>,
        mut make: impl FnMut(&[Range<usize>], Ptr) -> Result<()>,
    ) -> Result<Tensor> {
        let mut sums = SmallVec::<[Tensor; 8]>::new();
        for (index, places) in self.groups.iter().enumerate() {
            let mut sum = empty()?;
            make(places, sum.at())?;
            for _ in 0..index.trailing_ones() {
                let mut earlier = sums.pop().expect("the tree has a sum for each joined one");
                earlier.add(&sum)?;
                sum = earlier;
            }
            sums.push(sum);
        }
        Ok(sums.swap_remove(0))
    }
}

impl Matrix {
    pub(super) fn of(tensor: &Tensor) -> Self {
        let (rows, columns) = (tensor.shape().rows(), tensor.shape().last());
        Self { at: tensor.at(), dtype: tensor.dtype(), rows, columns }
    }

    /// A matrix of these columns alone.
    pub(super) fn columns(&self, gpu: &Gpu, places: &[Range<usize>]) -> Result<Memory> {
        let part = gpu.memory_of(self.rows * width(places) * self.dtype.bytes())?;
        gpu.gather_columns(self.dtype, part.at(), (self.at, self.columns), self.rows, places)?;
        Ok(part)
    }

    pub(super) fn put_columns(&self, gpu: &Gpu, places: &[Range<usize>], from: &Memory) -> Result<()> {
        gpu.scatter_columns(self.dtype, (self.at, self.columns), from.at(), self.rows, places)
    }

    /// A matrix of these rows alone, or of these columns.
    pub(super) fn part(&self, gpu: &Gpu, by_rows: bool, places: &[Range<usize>]) -> Result<Memory> {
        if !by_rows {
            return self.columns(gpu, places);
        }
        let part = gpu.memory_of(width(places) * self.row_bytes())?;
        self.each_range(places, |at, within, bytes| gpu.copy(part.at().offset(within), at, bytes))?;
        Ok(part)
    }

    /// Writes a part.
    pub(super) fn put(&self, gpu: &Gpu, by_rows: bool, places: &[Range<usize>], from: &Memory) -> Result<()> {
        match by_rows {
            true => {
                self.each_range(places, |at, within, bytes| gpu.copy(at, from.at().offset(within), bytes))
            }
            false => self.put_columns(gpu, places, from),
        }
    }

    /// The bytes of a part.
    pub(super) fn part_bytes(&self, by_rows: bool, places: &[Range<usize>]) -> usize {
        let each = if by_rows { self.row_bytes() } else { self.rows * self.dtype.bytes() };
        each * width(places)
    }

    fn row_bytes(&self) -> usize {
        self.columns * self.dtype.bytes()
    }

    /// Calls `copy` for each range of rows: its address, where it is in a part of these rows alone, and its
    /// bytes.
    fn each_range(
        &self,
        rows: &[Range<usize>],
        copy: impl Fn(Ptr, usize, usize) -> Result<()>,
    ) -> Result<()> {
        let mut within = 0;
        for range in rows {
            let bytes = range.len() * self.row_bytes();
            copy(self.at.offset(range.start * self.row_bytes()), within, bytes)?;
            within += bytes;
        }
        Ok(())
    }
}

/// The number of places.
pub(super) fn width(places: &[Range<usize>]) -> usize {
    places.iter().map(Range::len).sum()
}
