//! Batch and group norm.

use crate::cuda::launch::{args, kernel};
use crate::cuda::{Gpu, Grid, Memory, Ptr};
use crate::device::DType;
use crate::error::Result;

/// The channels of a block.
const CHANNELS: usize = 32;
/// The least rows of a slice.
const SLICE: usize = 64;
/// How many blocks sum over rows: four for each of the 132 multiprocessors of an H200.
const BLOCKS: usize = 528;
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
    fn count(self) -> usize {
        self.rows * self.width
    }

    /// How many rows a block sums: all rows of an image, or some.
    fn slice(self) -> usize {
        let most = (BLOCKS / self.width.div_ceil(CHANNELS)).max(1);
        let some = self.rows.div_ceil(most).max(SLICE);
        self.groups.map_or(some, |groups| groups.pixels)
    }

    fn slices(self) -> usize {
        self.rows.div_ceil(self.slice())
    }

    /// The grid of sums over rows.
    fn summing_grid(self) -> Grid {
        Grid {
            blocks: [self.slices() as u32, self.width.div_ceil(CHANNELS) as u32, 1],
            threads: THREADS,
            shared: 0,
        }
    }

    /// A grid with one thread for every eight numbers.
    fn eights(self) -> Grid {
        Grid::each(self.count().div_ceil(8), THREADS)
    }
}

impl Gpu {
    /// Writes `f32` means and variances of each channel, `[2, width]`; of group norm, the mean and the
    /// reciprocal deviation of each group of each image, `[images, groups, 2]`.
    pub(crate) fn channel_stats(
        &self,
        dtype: DType,
        stats: Ptr,
        input: Ptr,
        of: Channels,
        epsilon: f32,
    ) -> Result<()> {
        let partials = self.channel_partials(of)?;
        let is_each = u32::from(of.groups.is_some());
        let args = args![partials.at(), input, of.rows, of.width, of.slice(), is_each];
        self.launch(kernel!(dtype, "channel_moments"), of.summing_grid(), &args)?;
        let partials = partials.at();
        match of.groups {
            None => {
                let args = args![stats, partials, input, of.rows, of.slices()];
                self.launch(kernel!(dtype, "batch_moments"), Grid::row(of.width, 128), &args)
            }
            Some(groups) => {
                let Groups { count, pixels } = groups;
                let args = args![stats, partials, input, pixels, of.width, count, epsilon];
                let grid = Grid::row(of.slices() * groups.count, 32);
                self.launch(kernel!(dtype, "group_moments"), grid, &args)
            }
        }
    }

    /// Batch norm with these means and variances.
    #[expect(clippy::too_many_arguments, reason = "they are the kernel's")]
    pub(crate) fn batch_norm(
        &self,
        dtype: DType,
        out: Ptr,
        input: Ptr,
        [means, variances]: [Ptr; 2],
        [weight, bias]: [Ptr; 2],
        of: Channels,
        epsilon: f32,
    ) -> Result<()> {
        let (count, width) = (of.count(), of.width);
        let args = args![out, input, means, variances, weight, bias, count, width, epsilon];
        self.launch(kernel!(dtype, "batch_norm"), of.eights(), &args)
    }

    /// Turns the gradient into the input gradient, and writes `f32` `[4, width]`: the gradients of weight and
    /// bias, and what is added to both running means.
    #[expect(clippy::too_many_arguments, reason = "they are the kernels'")]
    pub(crate) fn batch_norm_backward(
        &self,
        dtype: DType,
        grad: Ptr,
        adds: Ptr,
        input: Ptr,
        stats: Ptr,
        weight: Ptr,
        of: Channels,
        epsilon: f32,
    ) -> Result<()> {
        let partials = self.channel_slopes(dtype, grad, input, stats, of)?;
        let by = self.memory_of(3 * of.width * 4)?;
        let (rows, slices) = (of.rows, of.slices());
        let args = args![adds, by.at(), partials.at(), stats, weight, rows, slices, epsilon];
        self.launch("batch_slopes", Grid::row(of.width, 128), &args)?;
        let args = args![grad, input, stats, by.at(), of.count(), of.width];
        self.launch(kernel!(dtype, "batch_norm_backward"), of.eights(), &args)
    }

    /// Group norm with the means and reciprocal deviations of groups.
    pub(crate) fn group_norm(
        &self,
        dtype: DType,
        [out, input, stats]: [Ptr; 3],
        [weight, bias]: [Ptr; 2],
        of: Channels,
        groups: Groups,
    ) -> Result<()> {
        let [all, width] = [of.count(), of.width];
        let image = groups.pixels * width;
        let args = args![out, input, stats, weight, bias, all, image, width, groups.count];
        self.launch(kernel!(dtype, "group_norm"), of.eights(), &args)
    }

    /// Turns the gradient into the input gradient, and writes `f32` `[2, width]`: the gradients of weight and
    /// bias.
    pub(crate) fn group_norm_backward(
        &self,
        dtype: DType,
        [grad, adds]: [Ptr; 2],
        [input, stats, weight]: [Ptr; 3],
        of: Channels,
        groups: Groups,
    ) -> Result<()> {
        let images = of.slices();
        let partials = self.channel_slopes(dtype, grad, input, stats, of)?;
        let by = self.memory_of(images * groups.count * 2 * 4)?;
        let of_images = self.memory_of(images * 2 * of.width * 4)?;
        let (width, Groups { count, pixels }) = (of.width, groups);
        let (sums, scales, partials) = (of_images.at(), by.at(), partials.at());
        let args = args![sums, scales, partials, stats, weight, pixels, width, count];
        self.launch("group_slopes", Grid::row(images * groups.count, 32), &args)?;
        self.sum_rows(adds, of_images.at(), images, 2 * of.width)?;
        let (all, image) = (of.count(), pixels * width);
        let args = args![grad, input, stats, scales, weight, all, image, width, count];
        self.launch(kernel!(dtype, "group_norm_backward"), of.eights(), &args)
    }

    /// The sums of the gradient over slices of rows, and of it times `x - mean`.
    fn channel_slopes(
        &self,
        dtype: DType,
        grad: Ptr,
        input: Ptr,
        stats: Ptr,
        of: Channels,
    ) -> Result<Memory> {
        let partials = self.channel_partials(of)?;
        // Where the mean of a channel is: see the kernel.
        let (of_slice, width, step) = match of.groups {
            None => (0, 1, 1),
            Some(groups) => (2 * groups.count, of.width / groups.count, 2_usize),
        };
        let args =
            args![partials.at(), grad, input, stats, of.rows, of.width, of.slice(), of_slice, width, step];
        self.launch(kernel!(dtype, "channel_slopes"), of.summing_grid(), &args)?;
        Ok(partials)
    }

    /// Memory for two `f64` sums of each channel and slice.
    fn channel_partials(&self, of: Channels) -> Result<Memory> {
        self.memory_of(of.slices() * 2 * of.width * 8)
    }
}
