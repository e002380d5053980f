//! RMSNorm of heads.

use crate::cuda::launch::{Arg, args, kernel};
use crate::cuda::{Gpu, Grid, Ptr};
use crate::device::DType;
use crate::error::Result;

/// The most threads of a block.
const THREADS: usize = 256;
/// The most blocks that sum gradients of gains: two for each of the 132 multiprocessors of an H200.
const MOST_BLOCKS: usize = 264;

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

    fn args(self) -> [Arg; 5] {
        args![self.tokens, self.queries, self.keys, self.width, self.lanes()]
    }

    /// The heads that a block of [`Gpu::head_norm_backward`] works on at once. Their sums take at most 16 kB
    /// of shared memory, or there is one.
    fn at_once(self) -> usize {
        (THREADS / self.lanes()).min((8 * THREADS / self.width).max(1))
    }

    /// The grid of sums over heads. It depends only on the sizes, so every device adds in the same order.
    fn summing_grid(self) -> Grid {
        let heads = self.tokens * (self.queries + self.keys);
        let (groups, lanes) = (self.at_once(), self.lanes());
        Grid {
            blocks: [heads.div_ceil(groups).min(MOST_BLOCKS) as u32, 1, 1],
            threads: (groups * lanes) as u32,
            shared: (groups * 2 * self.width * size_of::<f32>()) as u32,
        }
    }
}

impl Gpu {
    /// Like [`crate::layers::head_norm::cpu::forward`]. `gains` are the gains of queries and of keys.
    #[expect(clippy::too_many_arguments, reason = "they are the kernel's")]
    pub(crate) fn head_norm(
        &self,
        dtype: DType,
        out: Ptr,
        stats: Ptr,
        input: Ptr,
        gains: [Ptr; 2],
        rows: HeadRows,
        epsilon: f32,
    ) -> Result<()> {
        let [query, key] = gains;
        let [tokens, queries, keys, width, lanes] = rows.args();
        let heads = rows.tokens * (rows.queries + 2 * rows.keys);
        let grid = Grid::row(heads.div_ceil(THREADS / rows.lanes()), THREADS as u32);
        let args = args![out, stats, input, query, key, tokens, queries, keys, width, lanes, epsilon];
        self.launch(kernel!(dtype, "head_norm_forward"), grid, &args)
    }

    /// The bytes of scratch memory that [`Gpu::head_norm_backward`] needs.
    pub(crate) fn head_norm_scratch(rows: HeadRows) -> usize {
        rows.summing_grid().blocks[0] as usize * 2 * rows.width * size_of::<f32>()
    }

    /// Turns the output gradient into the input gradient. The gradients of the gains, `f32` `[2, width]`,
    /// overwrite what was there. Otherwise like [`crate::layers::head_norm::cpu::backward`].
    #[expect(clippy::too_many_arguments, reason = "they are the kernel's")]
    pub(crate) fn head_norm_backward(
        &self,
        dtype: DType,
        grad: Ptr,
        gain_grads: Ptr,
        input: Ptr,
        stats: Ptr,
        gains: [Ptr; 2],
        rows: HeadRows,
        scratch: Ptr,
    ) -> Result<()> {
        let grid = rows.summing_grid();
        let [query, key] = gains;
        let [tokens, queries, keys, width, lanes] = rows.args();
        let args = args![grad, scratch, input, stats, query, key, tokens, queries, keys, width, lanes];
        self.launch(kernel!(dtype, "head_norm_backward"), grid, &args)?;
        self.sum_rows(gain_grads, scratch, grid.blocks[0] as usize, 2 * rows.width)
    }
}
