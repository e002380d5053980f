//! Layer normalisation.

use super::launch::kernel;
use super::{Gpu, Grid, Ptr};
use crate::device::DType;
use crate::error::Result;

/// The widest rows that threads have in registers: 512 threads, eight numbers each.
const WIDEST: usize = 4096;
/// The most blocks, and so partial sums of weight gradients: two for each of the 132 multiprocessors of an H200.
const MOST_BLOCKS: usize = 264;
/// The most threads of a block.
const THREADS: usize = 512;

/// Rows and their width.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rows {
    /// How many.
    pub(crate) count: usize,
    /// Numbers of each.
    pub(crate) width: usize,
}

impl Rows {
    /// Threads of a row.
    fn lanes(self) -> usize {
        self.width.div_ceil(8).next_multiple_of(32)
    }

    /// Whether threads have a row in registers.
    fn is_narrow(self) -> bool {
        self.width <= WIDEST
    }

    /// Blocks: a function of the sizes only, so that every device adds in the same order.
    fn grid(self) -> Grid {
        if !self.is_narrow() {
            return Grid::row(self.count.min(MOST_BLOCKS), 1024);
        }
        let groups = (THREADS / self.lanes()).max(1);
        let blocks = self.count.div_ceil(groups).min(MOST_BLOCKS);
        Grid::row(blocks, (groups * self.lanes()) as u32)
    }
}

impl Gpu {
    /// As [`crate::cpu::norm::forward`].
    #[expect(clippy::too_many_arguments, reason = "they are the kernel's")]
    pub(crate) fn layer_norm(
        &self,
        dtype: DType,
        out: Ptr,
        stats: Ptr,
        input: Ptr,
        gain: Ptr,
        shift: Ptr,
        rows: Rows,
        epsilon: f32,
    ) -> Result<()> {
        let [count, width] = [(rows.count as u64).into(), (rows.width as u32).into()];
        let [out, stats, input, gain, shift] = [out, stats, input, gain, shift].map(Into::into);
        if !rows.is_narrow() {
            let args = [out, stats, input, gain, shift, count, width, epsilon.into()];
            return self.launch(kernel!(dtype, "layer_norm_forward_wide"), rows.grid(), &args);
        }
        let lanes = (rows.lanes() as u32).into();
        let args = [
            out,
            stats,
            input,
            gain,
            shift,
            count,
            width,
            lanes,
            epsilon.into(),
        ];
        self.launch(kernel!(dtype, "layer_norm_forward"), rows.grid(), &args)
    }

    /// As [`crate::cpu::norm::forward_again`].
    #[expect(clippy::too_many_arguments, reason = "they are the kernel's")]
    pub(crate) fn layer_norm_again(
        &self,
        dtype: DType,
        out: Ptr,
        stats: Ptr,
        input: Ptr,
        gain: Ptr,
        shift: Ptr,
        rows: Rows,
    ) -> Result<()> {
        let [count, width] = [(rows.count as u64).into(), (rows.width as u32).into()];
        let [out, stats, input, gain, shift] = [out, stats, input, gain, shift].map(Into::into);
        if !rows.is_narrow() {
            let args = [out, stats, input, gain, shift, count, width];
            return self.launch(
                kernel!(dtype, "layer_norm_forward_again_wide"),
                rows.grid(),
                &args,
            );
        }
        let lanes = (rows.lanes() as u32).into();
        let args = [out, stats, input, gain, shift, count, width, lanes];
        self.launch(kernel!(dtype, "layer_norm_forward_again"), rows.grid(), &args)
    }

    /// Bytes of scratch that [`Gpu::layer_norm_backward`] needs.
    pub(crate) fn layer_norm_scratch(rows: Rows) -> usize {
        rows.grid().blocks[0] as usize * 2 * rows.width * 4
    }

    /// The input gradient from the output gradient `grad`, which it may replace, and the gradients of gain and shift, `f32` `[2, width]`,
    /// which replace what was there. As [`crate::cpu::norm::backward`] else.
    #[expect(clippy::too_many_arguments, reason = "they are the kernel's")]
    pub(crate) fn layer_norm_backward(
        &self,
        dtype: DType,
        input_grad: Ptr,
        weight_grads: Ptr,
        grad: Ptr,
        input: Ptr,
        stats: Ptr,
        gain: Ptr,
        rows: Rows,
        scratch: Ptr,
    ) -> Result<()> {
        let grid = rows.grid();
        let [count, width] = [(rows.count as u64).into(), (rows.width as u32).into()];
        let [input_grad, partials, grad, input, stats, gain] =
            [input_grad, scratch, grad, input, stats, gain].map(Into::into);
        if rows.is_narrow() {
            let lanes = (rows.lanes() as u32).into();
            let args = [
                input_grad, partials, grad, input, stats, gain, count, width, lanes,
            ];
            self.launch(kernel!(dtype, "layer_norm_backward"), grid, &args)?;
        } else {
            let args = [input_grad, partials, grad, input, stats, gain, count, width];
            self.launch(kernel!(dtype, "layer_norm_backward_wide"), grid, &args)?;
        }
        self.sum_rows(weight_grads, scratch, grid.blocks[0] as usize, 2 * rows.width)
    }
}
