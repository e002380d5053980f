//! Convolutions: rows of what windows see, and products of these with the weights.

use crate::cuda::launch::{Arg, args, kernel};
use crate::cuda::{Gpu, Grid, Memory, Product, Ptr, Start};
use crate::device::DType;
use crate::error::Result;
use crate::layers::conv::cpu::window::{Image, Window};

/// The most bytes of rows that are in memory at a time, unless the rows of one image are more. It is a power
/// of two.
const ROWS: usize = 64 << 20;

/// Images, and a window that moves over them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Windows {
    /// The number of images.
    pub(crate) count: usize,
    pub(crate) image: Image,
    /// What the window sees of an image at all its places.
    pub(crate) seen: Image,
    pub(crate) window: Window,
}

/// Some of the images.
#[derive(Clone, Copy)]
struct Few {
    first: usize,
    count: usize,
}

impl Windows {
    /// The places of an image.
    fn places(self) -> usize {
        self.seen.height * self.seen.width
    }

    /// The numbers that a window sees.
    fn depth(self) -> usize {
        self.image.channels * self.window.kernel * self.window.kernel
    }

    /// How many images have their rows in memory at a time, in numbers of this format.
    fn together(self, rows: DType) -> usize {
        let image = self.places() * self.depth() * rows.bytes();
        (ROWS / image.max(1)).clamp(1, self.count.max(1))
    }

    fn each(self, rows: DType) -> impl Iterator<Item = Few> {
        let together = self.together(rows);
        (0..self.count)
            .step_by(together)
            .map(move |first| Few { first, count: together.min(self.count - first) })
    }

    /// The bytes of the rows that are in memory at a time. Sizes are powers of two up to the largest, so that
    /// layers of different sizes use few blocks of memory.
    pub(crate) fn scratch(self, rows: DType) -> usize {
        let bytes = self.together(rows) * self.places() * self.depth() * rows.bytes();
        match bytes <= ROWS {
            true => bytes.next_power_of_two(),
            false => bytes,
        }
    }

    /// The product of the rows of some images with the weights, `[depth, outputs]`.
    fn product(self, few: Few, dtype: DType) -> Product {
        Product {
            rows: few.count * self.places(),
            inner: self.depth(),
            columns: self.seen.channels,
            left_turned: false,
            right_turned: false,
            dtype,
            out: dtype,
            start: Start::Zero,
            bias: false,
        }
    }

    /// The arguments of kernels after the addresses.
    pub(crate) fn args(self, addresses: &[Ptr]) -> Vec<Arg> {
        let Self { image, seen, window, .. } = self;
        let sizes = [
            image.height,
            image.width,
            image.channels,
            seen.height,
            seen.width,
            window.kernel,
            window.stride,
            window.padding,
        ];
        let addresses = addresses.iter().copied().map(Arg::from);
        addresses.chain(sizes.map(Arg::from)).collect()
    }
}

/// The address of an image.
fn image_at(images: Ptr, index: usize, image: Image, dtype: DType) -> Ptr {
    images.offset(index * image.count() * dtype.bytes())
}

impl Gpu {
    /// Like [`crate::layers::conv::cpu::forward`], with weights and bias in this format.
    pub(crate) fn convolve(
        &self,
        dtype: DType,
        out: Ptr,
        images: Ptr,
        weight: Ptr,
        bias: Option<Ptr>,
        of: Windows,
    ) -> Result<()> {
        if let Some(bias) = bias {
            let columns = of.seen.channels;
            let args = args![out, bias, columns];
            let grid = Grid::of_rows(of.count * of.places(), columns);
            self.launch(kernel!(dtype, "repeat_row"), grid, &args)?;
        }
        let start = if bias.is_some() { Start::Old } else { Start::Zero };
        for few in of.each(dtype) {
            let rows = self.rows_of(dtype, images, few, of)?;
            let product = Product { start, ..of.product(few, dtype) };
            let out = image_at(out, few.first, of.seen, dtype);
            self.product_anywhere(product, out, rows.at(), weight)?;
        }
        Ok(())
    }

    /// Like [`crate::layers::conv::cpu::backward`], with the weights in this format, as they are.
    pub(crate) fn convolve_backward(
        &self,
        dtype: DType,
        out: Ptr,
        grads: Ptr,
        weight: Ptr,
        of: Windows,
    ) -> Result<()> {
        for few in of.each(DType::F32) {
            let rows = self.memory_of(of.scratch(DType::F32))?;
            let forward = of.product(few, dtype);
            let product = Product {
                inner: forward.columns,
                columns: forward.inner,
                right_turned: true,
                out: DType::F32,
                ..forward
            };
            let grads = image_at(grads, few.first, of.seen, dtype);
            self.product_anywhere(product, rows.at(), grads, weight)?;
            let args = of.args(&[image_at(out, few.first, of.image, dtype), rows.at()]);
            let pixels = few.count * of.image.height * of.image.width;
            let grid = Grid::row(pixels, threads(of.image.channels));
            self.launch(kernel!(dtype, "sum_windows"), grid, &args)?;
        }
        Ok(())
    }

    /// Adds to `f32` `out`, or overwrites it if it `starts_sum`. Otherwise like
    /// [`crate::layers::conv::cpu::weights::add_weight_grad`].
    pub(crate) fn convolve_weights(
        &self,
        dtype: DType,
        out: Ptr,
        starts_sum: bool,
        [images, grads]: [Ptr; 2],
        of: Windows,
    ) -> Result<()> {
        for few in of.each(dtype) {
            let rows = self.rows_of(dtype, images, few, of)?;
            let forward = of.product(few, dtype);
            let product = Product {
                rows: forward.inner,
                inner: forward.rows,
                left_turned: true,
                out: DType::F32,
                start: match starts_sum && few.first == 0 {
                    true => Start::Zero,
                    false => Start::Old,
                },
                ..forward
            };
            let grads = image_at(grads, few.first, of.seen, dtype);
            self.product_anywhere(product, out, rows.at(), grads)?;
        }
        Ok(())
    }

    /// What the windows of some images see.
    fn rows_of(&self, dtype: DType, images: Ptr, few: Few, of: Windows) -> Result<Memory> {
        let rows = self.memory_of(of.scratch(dtype))?;
        let args = of.args(&[rows.at(), image_at(images, few.first, of.image, dtype)]);
        let grid = Grid::row(few.count * of.places(), threads(of.depth()));
        self.launch(kernel!(dtype, "take_windows"), grid, &args)?;
        Ok(rows)
    }
}

/// The threads of a block that works on `count` numbers one after the other.
pub(crate) fn threads(count: usize) -> u32 {
    count.next_multiple_of(32).min(256) as u32
}
