//! What a parameter holds of a tensor that is divided among several shards.

use std::ops::Range;

use crate::shards::Division;

/// What a parameter holds of a whole tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    /// The dimensions of the whole tensor.
    pub(super) dims: Vec<usize>,
    /// The sizes of the tensors that are fused in it: see [`Parameter::fuse`](crate::Parameter::fuse).
    pub(super) fused: Vec<usize>,
    /// Whether the first dimension is divided, and not the last one.
    pub(super) is_first: bool,
    pub(super) division: Division,
}

impl Cut {
    /// The numbers of a shard in the whole tensor, in the order of the shard's memory.
    pub(super) fn ranges(&self, shard: u32) -> impl Iterator<Item = Range<usize>> + use<> {
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
