//! Losses.

use crate::cuda::launch::{args, kernel};
use crate::cuda::{Gpu, Grid, Pinned, Ptr};
use crate::device::DType;
use crate::error::Result;

/// The most threads in a block.
const THREADS: usize = 1024;
/// The most threads that share a row of logits. Two such blocks fit on a multiprocessor.
const ROW_THREADS: usize = 512;
/// The most bytes of a row of logits that its block keeps in shared memory: so that two blocks fit.
const KEPT: usize = 110 << 10;
/// The bytes of shared memory that a block of `cross_entropy` has besides the row, at most.
const REST: usize = 2 << 10;
/// The most blocks of `mean_squared_error`.
const MOST_BLOCKS: usize = 528;
/// The bytes of a row's partial score: the loss, the weight, how many were right.
const SCORE: usize = 24;

/// How many blocks share a mean squared error.
fn blocks(count: usize) -> usize {
    count.div_ceil(8 * THREADS).min(MOST_BLOCKS)
}

/// Logits and their target classes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Logits {
    /// `[rows, classes]`. Becomes the gradient.
    pub(crate) at: Ptr,
    /// Ids `[rows]`. Each is below `classes`, or ignored.
    pub(crate) targets: Ptr,
    /// The number of rows.
    pub(crate) rows: usize,
    /// The number of classes.
    pub(crate) classes: usize,
    /// The class to ignore.
    pub(crate) ignore: Option<u32>,
    /// The share of a target that is spread over all classes.
    pub(crate) smoothing: f32,
}

impl Gpu {
    /// The bytes of scratch memory that [`Gpu::cross_entropy`] needs.
    pub(crate) fn cross_entropy_scratch(rows: usize) -> usize {
        rows * SCORE
    }

    /// Cross-entropy. Writes three `f64` to `out`: the sum of the loss, the number of counted rows, and how
    /// many of them are right. `out` may be pinned memory of the host. If `gradient` is set, the logits
    /// become the gradient; otherwise they do not change.
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
        let eights = logits.classes.div_ceil(8);
        // The row is written as whole eights.
        let row = 8 * eights * dtype.bytes();
        let is_kept = gradient && row <= KEPT.min(self.most_shared() - REST);
        let grid = Grid {
            shared: if is_kept { row as u32 } else { 0 },
            ..Grid::row(logits.rows, eights.next_multiple_of(32).min(ROW_THREADS) as u32)
        };
        let args = args![
            logits.at,
            logits.targets,
            scratch,
            logits.classes,
            logits.ignore.map_or(u64::MAX, u64::from),
            logits.smoothing,
            u32::from(is_kept)
        ];
        self.launch(name, grid, &args)?;
        self.sum_doubles(out, scratch, logits.rows, 3)
    }

    /// The bytes of scratch memory that [`Gpu::mean_squared_error`] needs.
    pub(crate) fn mean_squared_error_scratch(count: usize) -> usize {
        blocks(count) * SCORE
    }

    /// The squared difference from the target, which is `f32`. Writes three `f64` to `out`: the sum, how many
    /// numbers there are, and 0. `out` may be pinned memory of the host. The output becomes the gradient of
    /// the sum.
    pub(crate) fn mean_squared_error(
        &self,
        dtype: DType,
        output: Ptr,
        target: Ptr,
        count: usize,
        out: Ptr,
        scratch: Ptr,
    ) -> Result<()> {
        let args = args![output, target, scratch, count];
        let grid = Grid::row(blocks(count), THREADS as u32);
        self.launch(kernel!(dtype, "mean_squared_error"), grid, &args)?;
        self.sum_doubles(out, scratch, blocks(count), 3)
    }
}

/// Room for the score of each micro-batch.
#[derive(Debug, Default)]
pub(crate) struct Scores(Vec<Option<Pinned>>);

impl Scores {
    /// The address for a micro-batch's sum, weight and number of right predictions, `f64` each.
    pub(crate) fn place(&mut self, micro_batch: u32) -> Result<Ptr> {
        let index = micro_batch as usize;
        if self.0.len() <= index {
            self.0.resize_with(index + 1, || None);
        }
        let place = match self.0[index].take() {
            Some(place) => place,
            None => Pinned::new(size_of::<[f64; 3]>())?,
        };
        let at = place.at();
        self.0[index] = Some(place);
        Ok(at)
    }

    /// The sum, the weight and the number of right predictions of a micro-batch, once the GPU is done.
    pub(crate) fn numbers(&self, micro_batch: u32) -> [f64; 3] {
        let place = self.0[micro_batch as usize].as_ref();
        let numbers = place.expect("`place` came before").numbers();
        [numbers[0], numbers[1], numbers[2]]
    }
}
