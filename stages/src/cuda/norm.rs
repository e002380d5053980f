//! Layer normalisation.

use super::launch::kernel;
use super::{Gpu, Grid, Ptr};
use crate::device::DType;
use crate::error::Result;

/// The widest rows that a warp has in registers, 32 numbers a thread, and that a block has, eight a thread.
const WIDEST_OF_WARP: usize = 1024;
const WIDEST_OF_BLOCK: usize = 4096;
/// The most blocks, and so partial sums of weight gradients: two for each of the 132 multiprocessors of an H200.
const MOST_BLOCKS: usize = 264;
/// The most threads of a block.
const THREADS: usize = 512;
/// Warps, and so rows, of a block where a warp has a row.
const WARPS: usize = 8;

/// Which threads have a row.
#[derive(Clone, Copy, Debug)]
enum Form {
    /// A warp, which loads 16 bytes a thread at once.
    Narrow,
    /// Some warps of a block.
    Middle,
    /// A block, which reads the row again and again.
    Wide,
}

/// Rows and their width.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rows {
    /// How many.
    pub(crate) count: usize,
    /// Numbers of each.
    pub(crate) width: usize,
}

impl Rows {
    /// Every tensor and weight has memory of its own, so the width alone says how rows are aligned.
    fn form(self) -> Form {
        match self.width {
            width if width <= WIDEST_OF_WARP && width.is_multiple_of(8) => Form::Narrow,
            width if width <= WIDEST_OF_BLOCK => Form::Middle,
            _ => Form::Wide,
        }
    }

    /// Blocks of the forward pass.
    fn grid(self) -> Grid {
        match self.form() {
            Form::Narrow => Grid::row(self.count.div_ceil(WARPS), 32 * WARPS as u32),
            _ => self.summing_grid(),
        }
    }

    /// Blocks that share sums over rows: a function of the sizes only, so that every device adds in the same order.
    fn summing_grid(self) -> Grid {
        let (rows, threads) = match self.form() {
            Form::Narrow => (WARPS, 32 * WARPS),
            Form::Middle => {
                let lanes = self.width.div_ceil(256) * 32;
                let rows = (THREADS / lanes).max(1);
                (rows, rows * lanes)
            }
            Form::Wide => (1, 1024),
        };
        Grid::row(self.count.div_ceil(rows).min(MOST_BLOCKS), threads as u32)
    }

    fn backward_kernel(self, dtype: DType) -> &'static str {
        match (self.form(), self.width.div_ceil(256)) {
            (Form::Narrow, 1) => kernel!(dtype, "layer_norm_backward_narrow_1"),
            (Form::Narrow, 2) => kernel!(dtype, "layer_norm_backward_narrow_2"),
            (Form::Narrow, 3) => kernel!(dtype, "layer_norm_backward_narrow_3"),
            (Form::Narrow, _) => kernel!(dtype, "layer_norm_backward_narrow_4"),
            (Form::Middle, _) => kernel!(dtype, "layer_norm_backward"),
            (Form::Wide, _) => kernel!(dtype, "layer_norm_backward_wide"),
        }
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
        let name = match rows.form() {
            Form::Narrow => kernel!(dtype, "layer_norm_forward_narrow"),
            Form::Middle => kernel!(dtype, "layer_norm_forward"),
            Form::Wide => kernel!(dtype, "layer_norm_forward_wide"),
        };
        let args = [out, stats, input, gain, shift, count, width, epsilon.into()];
        self.launch(name, rows.grid(), &args)
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
        let name = match rows.form() {
            Form::Narrow => kernel!(dtype, "layer_norm_forward_again_narrow"),
            Form::Middle => kernel!(dtype, "layer_norm_forward_again"),
            Form::Wide => kernel!(dtype, "layer_norm_forward_again_wide"),
        };
        let args = [out, stats, input, gain, shift, count, width];
        self.launch(name, rows.grid(), &args)
    }

    /// Bytes of scratch that [`Gpu::layer_norm_backward`] needs.
    pub(crate) fn layer_norm_scratch(rows: Rows) -> usize {
        rows.summing_grid().blocks[0] as usize * 2 * rows.width * 4
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
        let grid = rows.summing_grid();
        let [count, width] = [(rows.count as u64).into(), (rows.width as u32).into()];
        let [input_grad, partials, grad, input, stats, gain] =
            [input_grad, scratch, grad, input, stats, gain].map(Into::into);
        let args = [input_grad, partials, grad, input, stats, gain, count, width];
        self.launch(rows.backward_kernel(dtype), grid, &args)?;
        self.sum_rows(weight_grads, scratch, grid.blocks[0] as usize, 2 * rows.width)
    }
}
