//! RMSNorm of heads.

use crate::cuda::{Gpu, Grid};

/// The most threads of a block.
const THREADS: usize = 256;
/// The most blocks on a multiprocessor that sum gradients of gains.
const BLOCKS: usize = 2;

/// The rows of tokens: query heads, key heads and as many value heads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeadRows {
    /// The number of tokens.
    pub(crate) tokens: usize,
    /// The number of query heads.
    pub(crate) queries: usize,
    /// The number of key heads.
    pub(crate) keys: usize,
    /// The numbers in a head.
    pub(crate) width: usize,
}

impl HeadRows {
    /// The threads that share a head, each with eight columns at a time.
    fn lanes(self) -> usize {
        self.width.div_ceil(8).next_power_of_two().min(32)
    }

    /// The numbers of a token.
    pub(crate) fn row(self) -> usize {
        (self.queries + 2 * self.keys) * self.width
    }

    /// What all kernels get: tokens, query heads, key heads, width and lanes.
    pub(crate) fn sizes(self) -> [usize; 5] {
        [self.tokens, self.queries, self.keys, self.width, self.lanes()]
    }

    /// The grid of forward.
    pub(crate) fn grid(self) -> Grid {
        let heads = self.tokens * (self.queries + 2 * self.keys);
        Grid::row(heads.div_ceil(THREADS / self.lanes()), THREADS as u32)
    }

    /// The heads that a block of backward works on at once. Their sums take at most 16 kB of shared memory,
    /// or there is one.
    fn at_once(self) -> usize {
        (THREADS / self.lanes()).min((8 * THREADS / self.width).max(1))
    }

    /// The grid of sums over heads. It depends only on the sizes and the kind of GPU, so every device of a
    /// kind adds in the same order.
    pub(crate) fn summing_grid(self, gpu: &Gpu) -> Grid {
        let heads = self.tokens * (self.queries + self.keys);
        let (groups, lanes) = (self.at_once(), self.lanes());
        Grid {
            blocks: [heads.div_ceil(groups).min(gpu.blocks(BLOCKS)) as u32, 1, 1],
            threads: (groups * lanes) as u32,
            shared: (groups * 2 * self.width * size_of::<f32>()) as u32,
        }
    }
}
