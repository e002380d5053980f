//! Rows on their way to experts and back.

use crate::cuda::launch::{args, kernel};
use crate::cuda::{Gpu, Grid, Ptr};
use crate::device::DType;
use crate::error::Result;

/// The threads of a block in which each warp has a token.
const THREADS: u32 = 256;

/// A micro-batch's choice of experts on the device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChoiceOnGpu {
    /// Of each token, its experts.
    pub(crate) chosen: Ptr,
    /// In this order, the places of the rows.
    pub(crate) places: Ptr,
    /// The token of each row.
    pub(crate) row_tokens: Ptr,
    /// The weight of each row, `f32`.
    pub(crate) weights: Ptr,
    /// The number of each expert's rows.
    pub(crate) counts: Ptr,
    /// The number of tokens.
    pub(crate) tokens: usize,
    /// How many experts compute a token.
    pub(crate) of_token: usize,
    /// How many experts there are.
    pub(crate) experts: usize,
}

impl Gpu {
    /// Writes rows of `width` numbers: of each row of `out`, the row of its token.
    pub(crate) fn experts_take(
        &self,
        dtype: DType,
        [out, from]: [Ptr; 2],
        choice: ChoiceOnGpu,
        width: usize,
    ) -> Result<()> {
        // It is what an embedding does, from a table of tokens without positions.
        let sizes = [choice.tokens * choice.of_token, 1, width];
        self.embedding(dtype, out, choice.row_tokens, from, Ptr::NONE, sizes)
    }

    /// Writes to each token of `out`, `width` numbers, the sum of its rows times their weights.
    pub(crate) fn experts_mix(
        &self,
        dtype: DType,
        [out, rows]: [Ptr; 2],
        choice: ChoiceOnGpu,
        width: usize,
    ) -> Result<()> {
        let args = args![out, rows, choice.places, choice.weights, choice.of_token, width];
        let grid = Grid::of_rows(choice.tokens, width);
        self.launch(kernel!(dtype, "experts_mix"), grid, &args)
    }

    /// Adds to each token of `sums`, `width` numbers, its rows.
    pub(crate) fn experts_add(
        &self,
        dtype: DType,
        [sums, rows]: [Ptr; 2],
        choice: ChoiceOnGpu,
        width: usize,
    ) -> Result<()> {
        let args = args![sums, rows, choice.places, choice.of_token, width];
        let grid = Grid::of_rows(choice.tokens, width);
        self.launch(kernel!(dtype, "experts_add"), grid, &args)
    }

    /// Like [`crate::layers::experts::cpu::weigh`]. The slopes are `f32`.
    pub(crate) fn experts_weigh(
        &self,
        dtype: DType,
        [grads, values]: [Ptr; 2],
        slopes: Ptr,
        choice: ChoiceOnGpu,
        width: usize,
    ) -> Result<()> {
        let args = args![grads, values, slopes, choice.weights, width];
        let grid = Grid::of_rows(choice.tokens * choice.of_token, width);
        self.launch(kernel!(dtype, "experts_weigh"), grid, &args)
    }

    /// The gradient of the scores, from the slope of each row's weight. `share` times the number of its rows
    /// is the slope of an expert's probability in the auxiliary loss.
    pub(crate) fn experts_scores(
        &self,
        dtype: DType,
        [out, scores]: [Ptr; 2],
        slopes: Ptr,
        choice: ChoiceOnGpu,
        share: f32,
    ) -> Result<()> {
        let args = args![
            out,
            scores,
            slopes,
            choice.chosen,
            choice.places,
            choice.weights,
            choice.counts,
            choice.tokens,
            choice.of_token,
            choice.experts,
            share
        ];
        let grid = Grid::each(32 * choice.tokens, THREADS);
        self.launch(kernel!(dtype, "experts_scores"), grid, &args)
    }
}
