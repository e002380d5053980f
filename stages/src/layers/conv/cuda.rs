//! Convolutions: rows of what windows see, and products of these with the weights.

use crate::cuda::launch::{Arg, args, kernel};
use crate::cuda::{Gpu, Grid, Memory, Product, Ptr, Start};
use crate::device::DType;
use crate::error::Result;
use crate::layers::conv::cpu::window::{Image, Windows};
use crate::tensor::Tensor;

/// The most bytes of rows that are in memory at a time, unless the rows of one image are more. It is a power
/// of two.
const ROWS: usize = 64 << 20;

/// Some of the images.
#[derive(Clone, Copy)]
struct Few {
    first: usize,
    count: usize,
}

impl Windows {
    /// The places of an image.
    pub(crate) fn places(self) -> usize {
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
        Product::new([few.count * self.places(), self.depth(), self.seen.channels], dtype)
    }

    /// The arguments of a kernel: first these, then the sizes.
    pub(crate) fn args(self, first: &[Arg]) -> Vec<Arg> {
        let Self { image, seen, window, .. } = self;
        let sizes = args![
            image.height,
            image.width,
            image.channels,
            seen.height,
            seen.width,
            window.kernel,
            window.stride,
            window.padding,
        ];
        [first, &sizes].concat()
    }

    /// Launches a kernel with a block for each pixel of `count` images.
    pub(crate) fn each_pixel(self, gpu: &Gpu, name: &'static str, count: usize, first: &[Arg]) -> Result<()> {
        let grid = Grid::row(count * self.image.height * self.image.width, threads(self.image.channels));
        gpu.launch(name, grid, &self.args(first))
    }

    /// Like [`crate::layers::conv::cpu::forward`], with weights and bias in the format of the images.
    pub(crate) fn forward(
        self,
        gpu: &Gpu,
        images: &Tensor,
        weight: Ptr,
        bias: Option<Ptr>,
    ) -> Result<Tensor> {
        let (output, dtype) = (images.beside(self.output_shape().dims())?, images.dtype());
        if let Some(bias) = bias {
            let columns = self.seen.channels;
            let grid = Grid::of_rows(self.count * self.places(), columns);
            gpu.launch(kernel!(dtype, "repeat_row"), grid, &args![&output, bias, columns])?;
        }
        let start = Start::of_sum(bias.is_none());
        for few in self.each(dtype) {
            let rows = self.rows_of(gpu, images, few)?;
            let product = Product { start, ..self.product(few, dtype) };
            gpu.product_anywhere(product, image_at(&output, few, self.seen), rows.at(), weight)?;
        }
        Ok(output)
    }

    /// Like [`crate::layers::conv::cpu::backward`], with the weights in the format of the gradients, as they
    /// are.
    pub(crate) fn backward(self, gpu: &Gpu, grads: &Tensor, weight: Ptr) -> Result<Tensor> {
        let Image { height, width, channels } = self.image;
        let (out, dtype) = (grads.beside(&[self.count, height, width, channels])?, grads.dtype());
        for few in self.each(DType::F32) {
            let rows = gpu.memory_of(self.scratch(DType::F32))?;
            let forward = self.product(few, dtype);
            let product = Product {
                inner: forward.columns,
                columns: forward.inner,
                right_turned: true,
                out: DType::F32,
                ..forward
            };
            gpu.product_anywhere(product, rows.at(), image_at(grads, few, self.seen), weight)?;
            let args = args![image_at(&out, few, self.image), &rows];
            self.each_pixel(gpu, kernel!(dtype, "sum_windows"), few.count, &args)?;
        }
        Ok(out)
    }

    /// Adds to `f32` `out`, or overwrites it if it `starts_sum`. Otherwise like
    /// [`crate::layers::conv::cpu::weights::add_weight_grad`].
    pub(crate) fn add_weight_grad(
        self,
        gpu: &Gpu,
        out: Ptr,
        starts_sum: bool,
        [images, grads]: [&Tensor; 2],
    ) -> Result<()> {
        let dtype = grads.dtype();
        for few in self.each(dtype) {
            let rows = self.rows_of(gpu, images, few)?;
            let forward = self.product(few, dtype);
            let product = Product {
                rows: forward.inner,
                inner: forward.rows,
                left_turned: true,
                out: DType::F32,
                start: Start::of_sum(starts_sum && few.first == 0),
                ..forward
            };
            gpu.product_anywhere(product, out, rows.at(), image_at(grads, few, self.seen))?;
        }
        Ok(())
    }

    /// What the windows of some images see.
    fn rows_of(self, gpu: &Gpu, images: &Tensor, few: Few) -> Result<Memory> {
        let rows = gpu.memory_of(self.scratch(images.dtype()))?;
        let args = self.args(&args![&rows, image_at(images, few, self.image)]);
        let grid = Grid::row(few.count * self.places(), threads(self.depth()));
        gpu.launch(kernel!(images.dtype(), "take_windows"), grid, &args)?;
        Ok(rows)
    }
}

/// The address of the first of some images.
fn image_at(images: &Tensor, few: Few, image: Image) -> Ptr {
    images.at().offset(few.first * image.count() * images.dtype().bytes())
}

/// The threads of a block that works on `count` numbers one after the other.
pub(crate) fn threads(count: usize) -> u32 {
    count.next_multiple_of(32).min(256) as u32
}
