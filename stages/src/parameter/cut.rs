//! What a parameter holds of a tensor that is divided among several shards.

use std::ops::Range;

use crate::parameter::Parameter;
use crate::shards::Division;
use crate::tensor::numbers::Numbers;

/// What a parameter holds of a whole tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    /// The dimensions of the whole tensor.
    dims: Vec<usize>,
    /// The sizes of the tensors that are fused in it: see [`Parameter::fuse`].
    fused: Vec<usize>,
    /// Whether the first dimension is divided, and not the last one.
    is_first: bool,
    division: Division,
}

impl Cut {
    /// The numbers of a shard in the whole tensor, in the order of the shard's memory.
    fn ranges(&self, shard: u32) -> impl Iterator<Item = Range<usize>> + use<> {
        let own = self.division.of_shard(shard).own();
        let numbers: usize = self.dims.iter().product();
        let last = self.dims.last().copied().unwrap_or(1);
        let (row, whole) = match self.is_first {
            true => (self.dims[1..].iter().product(), numbers),
            false => (1, last),
        };
        (0..numbers).step_by(whole.max(1)).flat_map(move |start| {
            let places = own.clone().into_iter();
            places.map(move |range| start + range.start * row..start + range.end * row)
        })
    }
}

impl Parameter {
    /// Keeps this shard's numbers only, of the whole tensor that it holds.
    pub(crate) fn keep_own(&mut self, is_first: bool, division: &Division) {
        if division.shard().of == 1 {
            return;
        }
        let cut =
            Cut { dims: self.dims.clone(), fused: self.fused.clone(), is_first, division: division.clone() };
        let divided = if is_first { 0 } else { self.dims.len() - 1 };
        self.dims[divided] = division.len();
        if is_first && !self.fused.is_empty() {
            self.fused = division.own().iter().map(Range::len).collect();
        }
        self.shard = division.shard();
        let count = self.dims.iter().product();
        let whole = std::mem::replace(&mut self.value, Numbers::zeros(count));
        self.grad = Numbers::zeros(if self.is_frozen() { 0 } else { count });
        self.owned = 0..self.grad.len();
        self.cut = Some(cut);
        let mut own = std::mem::replace(&mut self.value, Numbers::none());
        self.take_own(&whole, &mut own);
        self.value = own;
    }

    /// The dimensions of the whole tensor, of which it may hold a part.
    pub fn whole_dims(&self) -> &[usize] {
        self.cut.as_ref().map_or(&self.dims, |cut| &cut.dims)
    }

    /// As [`Parameter::fused`], of the whole tensor.
    pub fn whole_fused(&self) -> &[usize] {
        self.cut.as_ref().map_or(&self.fused, |cut| &cut.fused)
    }

    /// Copies its own numbers out of the numbers of the whole tensor.
    ///
    /// # Panics
    /// When there are too few numbers.
    pub fn take_own(&self, whole: &[f32], mut own: &mut [f32]) {
        let Some(cut) = &self.cut else {
            return own.copy_from_slice(whole);
        };
        for range in cut.ranges(self.shard.index) {
            let (to, rest) = own.split_at_mut(range.len());
            to.copy_from_slice(&whole[range]);
            own = rest;
        }
    }

    /// Copies a shard's numbers to their places in the whole tensor.
    ///
    /// # Panics
    /// When there are too few numbers.
    pub fn put_in_whole(&self, shard: u32, mut own: &[f32], whole: &mut [f32]) {
        let Some(cut) = &self.cut else {
            return whole.copy_from_slice(own);
        };
        for range in cut.ranges(shard) {
            let (from, rest) = own.split_at(range.len());
            whole[range].copy_from_slice(from);
            own = rest;
        }
    }
}
