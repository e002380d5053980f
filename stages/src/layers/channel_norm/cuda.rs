//! Batch and group norm.

use crate::cuda::launch::{args, kernel};
use crate::cuda::{Gpu, Grid, Memory};
use crate::error::Result;
use crate::tensor::Tensor;

/// The channels of a block.
const CHANNELS: usize = 32;
/// The least rows of a slice.
const SLICE: usize = 64;
/// How many blocks that sum over rows are on a multiprocessor.
const BLOCKS: usize = 4;
const THREADS: u32 = 256;

/// Rows of channels, which are normalised over slices of rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Channels {
    /// The number of rows.
    pub(crate) rows: usize,
    /// The channels of a row.
    pub(crate) width: usize,
    /// Of group norm.
    pub(crate) groups: Option<Groups>,
}

/// How group norm divides rows and channels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Groups {
    /// The groups of channels.
    pub(crate) count: usize,
    /// The rows of an image.
    pub(crate) pixels: usize,
}

impl Channels {
    /// How many numbers the rows have.
    pub(crate) fn count(self) -> usize {
        self.rows * self.width
    }

    /// How many rows a block sums: all rows of an image, or some.
    fn slice(self, gpu: &Gpu) -> usize {
        let most = (gpu.blocks(BLOCKS) / self.width.div_ceil(CHANNELS)).max(1);
        let some = self.rows.div_ceil(most).max(SLICE);
        self.groups.map_or(some, |groups| groups.pixels)
    }

    /// How many slices the rows have: of group norm, images.
    pub(crate) fn slices(self, gpu: &Gpu) -> usize {
        self.rows.div_ceil(self.slice(gpu))
    }

    /// The grid of sums over rows.
    fn summing_grid(self, gpu: &Gpu) -> Grid {
        Grid {
            blocks: [self.slices(gpu) as u32, self.width.div_ceil(CHANNELS) as u32, 1],
            threads: THREADS,
            shared: 0,
        }
    }

    /// A grid with one thread for every eight numbers.
    pub(crate) fn eights(self) -> Grid {
        Grid::each(self.count().div_ceil(8), THREADS)
    }

    /// Writes `f32` means and variances of each channel, `[2, width]`; of group norm, the mean and the
    /// reciprocal deviation of each group of each image, `[images, groups, 2]`.
    pub(crate) fn write_stats(self, gpu: &Gpu, stats: &Tensor, input: &Tensor, epsilon: f32) -> Result<()> {
        let (partials, dtype) = (self.partials(gpu)?, input.dtype());
        let is_each = u32::from(self.groups.is_some());
        let args = args![&partials, input, self.rows, self.width, self.slice(gpu), is_each];
        gpu.launch(kernel!(dtype, "channel_moments"), self.summing_grid(gpu), &args)?;
        match self.groups {
            None => {
                let args = args![stats, &partials, input, self.rows, self.slices(gpu)];
                gpu.launch(kernel!(dtype, "batch_moments"), Grid::row(self.width, 128), &args)
            }
            Some(Groups { count, pixels }) => {
                let args = args![stats, &partials, input, pixels, self.width, count, epsilon];
                gpu.launch(kernel!(dtype, "group_moments"), Grid::row(self.slices(gpu) * count, 32), &args)
            }
        }
    }

    /// The sums of the gradient over slices of rows, and of it times `x - mean`.
    pub(crate) fn slopes(self, gpu: &Gpu, grad: &Tensor, input: &Tensor, stats: &Tensor) -> Result<Memory> {
        let (partials, Self { rows, width, .. }) = (self.partials(gpu)?, self);
        // Where the mean of a channel is: see the kernel.
        let (of_slice, of_group, step) = match self.groups {
            None => (0, 1, 1),
            Some(groups) => (2 * groups.count, width / groups.count, 2_usize),
        };
        let slice = self.slice(gpu);
        let args = args![&partials, grad, input, stats, rows, width, slice, of_slice, of_group, step];
        gpu.launch(kernel!(grad.dtype(), "channel_slopes"), self.summing_grid(gpu), &args)?;
        Ok(partials)
    }

    /// Memory for two `f64` sums of each channel and slice.
    fn partials(self, gpu: &Gpu) -> Result<Memory> {
        gpu.memory_of(self.slices(gpu) * 2 * self.width * 8)
    }
}
