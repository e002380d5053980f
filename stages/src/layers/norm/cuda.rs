//! Norms of rows.

use crate::cuda::launch::kernel;
use crate::cuda::{Gpu, Grid};
use crate::device::DType;

/// The widest row that a warp holds in registers (32 numbers a thread), and the widest that a block holds:
/// with eight numbers a thread, and with 16.
const WIDEST_OF_WARP: usize = 1024;
const WIDEST_OF_BLOCK: [usize; 2] = [4096, 8192];
/// The most blocks on a multiprocessor. A block makes one of the parts of the sums for weight gradients.
const BLOCKS: usize = 2;
/// The most threads in a block.
const THREADS: usize = 512;
/// The warps of a block, if each warp has a row of its own.
const WARPS: usize = 8;

/// Which threads share a row.
#[derive(Clone, Copy, Debug)]
enum Form {
    /// A warp. Each thread loads 16 bytes at once.
    Narrow,
    /// Several warps of a block, with the number of eights that each thread has.
    Middle(usize),
    /// A whole block, which reads the row several times.
    Wide,
}

/// The number and width of rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rows {
    /// The number of rows.
    pub(crate) count: usize,
    /// The numbers in each row.
    pub(crate) width: usize,
}

impl Rows {
    /// Every tensor and weight starts at an aligned address, so the width alone decides how rows are aligned.
    fn form(self) -> Form {
        match self.width {
            width if width <= WIDEST_OF_WARP && width.is_multiple_of(8) => Form::Narrow,
            width => match WIDEST_OF_BLOCK.iter().position(|widest| width <= *widest) {
                Some(place) => Form::Middle(place + 1),
                None => Form::Wide,
            },
        }
    }

    /// The grid of the forward pass.
    pub(crate) fn grid(self, gpu: &Gpu) -> Grid {
        match self.form() {
            Form::Narrow => Grid::row(self.count.div_ceil(WARPS), 32 * WARPS as u32),
            _ => self.summing_grid(gpu),
        }
    }

    /// The grid of sums over rows. It depends only on the sizes and the kind of GPU, so every device of a
    /// kind adds in the same order.
    pub(crate) fn summing_grid(self, gpu: &Gpu) -> Grid {
        let (rows, threads) = match self.form() {
            Form::Narrow => (WARPS, 32 * WARPS),
            Form::Middle(parts) => {
                let lanes = self.width.div_ceil(256 * parts) * 32;
                let rows = (THREADS / lanes).max(1);
                (rows, rows * lanes)
            }
            Form::Wide => (1, 1024),
        };
        Grid::row(self.count.div_ceil(rows).min(gpu.blocks(BLOCKS)), threads as u32)
    }

    /// The kernel of backward. It overwrites the output gradient with the input gradient, and adds `onto`,
    /// unless it is no address, after rounding. It writes partial sums of the gradients of gain and shift.
    pub(crate) fn backward_kernel(self, dtype: DType) -> &'static str {
        match (self.form(), self.width.div_ceil(256)) {
            (Form::Narrow, 1) => kernel!(dtype, "layer_norm_backward_narrow_1"),
            (Form::Narrow, 2) => kernel!(dtype, "layer_norm_backward_narrow_2"),
            (Form::Narrow, 3) => kernel!(dtype, "layer_norm_backward_narrow_3"),
            (Form::Narrow, _) => kernel!(dtype, "layer_norm_backward_narrow_4"),
            (Form::Middle(1), _) => kernel!(dtype, "layer_norm_backward"),
            (Form::Middle(_), _) => kernel!(dtype, "layer_norm_backward_2"),
            (Form::Wide, _) => kernel!(dtype, "layer_norm_backward_wide"),
        }
    }

    /// The kernel of [`crate::layers::norm::cpu::forward`].
    pub(crate) fn forward_kernel(self, dtype: DType) -> &'static str {
        match self.form() {
            Form::Narrow => kernel!(dtype, "layer_norm_forward_narrow"),
            Form::Middle(1) => kernel!(dtype, "layer_norm_forward"),
            Form::Middle(_) => kernel!(dtype, "layer_norm_forward_2"),
            Form::Wide => kernel!(dtype, "layer_norm_forward_wide"),
        }
    }

    /// The kernel of [`crate::layers::norm::cpu::forward_again`].
    pub(crate) fn again_kernel(self, dtype: DType) -> &'static str {
        match self.form() {
            Form::Narrow => kernel!(dtype, "layer_norm_forward_again_narrow"),
            Form::Middle(1) => kernel!(dtype, "layer_norm_forward_again"),
            Form::Middle(_) => kernel!(dtype, "layer_norm_forward_again_2"),
            Form::Wide => kernel!(dtype, "layer_norm_forward_again_wide"),
        }
    }
}
