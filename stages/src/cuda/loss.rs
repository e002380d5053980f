//! Losses.

use super::launch::kernel;
use super::{Gpu, Grid, Ptr};
use crate::device::DType;
use crate::error::Result;

/// The most threads of a block.
const THREADS: usize = 1024;
/// The most blocks of `mean_squared_error`.
const MOST_BLOCKS: usize = 528;
/// Bytes of what a row leaves: the loss, how much it counts, how much was right.
const SCORE: usize = 24;

/// Blocks that share a mean squared error.
fn blocks(count: usize) -> usize {
    count.div_ceil(8 * THREADS).min(MOST_BLOCKS)
}

/// Logits and the classes that they are to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Logits {
    /// `[rows, classes]`; becomes the gradient.
    pub(crate) at: Ptr,
    /// Ids `[rows]`, each below `classes` or ignored.
    pub(crate) targets: Ptr,
    /// How many rows.
    pub(crate) rows: usize,
    /// How many classes.
    pub(crate) classes: usize,
    /// The class that is not counted.
    pub(crate) ignore: Option<u32>,
}

impl Gpu {
    /// Bytes of scratch that [`Gpu::cross_entropy`] needs.
    pub(crate) fn cross_entropy_scratch(rows: usize) -> usize {
        rows * SCORE
    }

    /// Cross-entropy: writes three `f64` to `out`, which may be pinned memory of the host (the sum of the loss, the number of counted rows,
    /// how many of these are right), and turns logits into the gradient if `gradient` is asked for; else they stay as they are.
    pub(crate) fn cross_entropy(
        &self,
        dtype: DType,
        logits: Logits,
        gradient: bool,
        out: Ptr,
        scratch: Ptr,
    ) -> Result<()> {
        let name = match gradient {
            true => kernel!(dtype, "cross_entropy"),
            false => kernel!(dtype, "cross_entropy_score"),
        };
        let threads = logits.classes.div_ceil(8).next_multiple_of(32).min(THREADS);
        let args = [
            logits.at.into(),
            logits.targets.into(),
            scratch.into(),
            (logits.classes as u32).into(),
            logits.ignore.map_or(u64::MAX, u64::from).into(),
        ];
        self.launch(name, Grid::row(logits.rows, threads as u32), &args)?;
        self.sum_doubles(out, scratch, logits.rows, 3)
    }

    /// Bytes of scratch that [`Gpu::mean_squared_error`] needs.
    pub(crate) fn mean_squared_error_scratch(count: usize) -> usize {
        blocks(count) * SCORE
    }

    /// Squared difference from the target, `f32`: writes three `f64` to `out`, which may be pinned memory of the host (the sum, how many
    /// numbers, 0), and turns the output into the gradient of the sum.
    pub(crate) fn mean_squared_error(
        &self,
        dtype: DType,
        output: Ptr,
        target: Ptr,
        count: usize,
        out: Ptr,
        scratch: Ptr,
    ) -> Result<()> {
        let args = [
            output.into(),
            target.into(),
            scratch.into(),
            (count as u64).into(),
        ];
        let grid = Grid::row(blocks(count), THREADS as u32);
        self.launch(kernel!(dtype, "mean_squared_error"), grid, &args)?;
        self.sum_doubles(out, scratch, blocks(count), 3)
    }
}
