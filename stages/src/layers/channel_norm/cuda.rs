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
    /// How many numbers the rows have.
    pub(crate) fn count(self) -> usize {
        self.rows * self.width
    }

    /// How many rows a block sums: all rows of an image, or some.
    fn slice(self) -> usize {
        let most = (BLOCKS / self.width.div_ceil(CHANNELS)).max(1);
        let some = self.rows.div_ceil(most).max(SLICE);
        self.groups.map_or(some, |groups| groups.pixels)
    }

    /// How many slices the rows have: of group norm, images.
    pub(crate) fn slices(self) -> usize {
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
    pub(crate) fn eights(self) -> Grid {
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

    /// The sums of the gradient over slices of rows, and of it times `x - mean`.
    pub(crate) fn channel_slopes(
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
