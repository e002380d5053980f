//! What a parameter holds of a tensor that is divided among several shards.

use std::iter;
use std::ops::Range;

use crate::shards::Division;

/// What a parameter holds of a whole tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    /// The dimensions of the whole tensor.
    pub(super) dims: Vec<usize>,
    /// The sizes of the tensors that are fused in it: see [`Parameter::fuse`](crate::Parameter::fuse).
    pub(super) fused: Vec<usize>,
    pub(super) how: How,
}

/// How a tensor is divided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// Its first dimension is.
    First(Division),
    /// Its last dimension is.
    Last(Division),
    /// This shard has all of it, and the others have nothing.
    Only(u32),
}

impl Cut {
    /// The numbers of a shard in the whole tensor, in the order of the shard's memory.
    pub(super) fn ranges(&self, shard: u32) -> Vec<Range<usize>> {
        let numbers: usize = self.dims.iter().product();
        let (division, row, whole) = match &self.how {
            How::First(division) => (division, self.dims[1..].iter().product(), numbers),
            How::Last(division) => (division, 1, self.dims.last().copied().unwrap_or(1)),
            How::Only(owner) if *owner == shard => return iter::once(0..numbers).collect(),
            How::Only(_) => return Vec::new(),
        };
        let own = division.of_shard(shard).own();
        let starts = (0..numbers).step_by(whole.max(1));
        let of_row = |start| own.iter().map(move |range| start + range.start * row..start + range.end * row);
        starts.flat_map(of_row).collect()
    }
}
