//! Pools of images.

use crate::cuda::launch::{args, kernel};
use crate::cuda::{Gpu, Grid, Ptr};
use crate::device::DType;
use crate::error::Result;
use crate::layers::conv::cpu::window::Image;
use crate::layers::conv::cuda::{Windows, threads};

impl Gpu {
    /// Like [`crate::layers::pooling::cpu::forward`].
    pub(crate) fn max_pool(
        &self,
        dtype: DType,
        out: Ptr,
        found: Ptr,
        images: Ptr,
        of: Windows,
    ) -> Result<()> {
        let places = of.count * of.seen.height * of.seen.width;
        let grid = Grid::row(places, threads(of.image.channels));
        self.launch(kernel!(dtype, "max_pool"), grid, &of.args(&[out, found, images]))
    }

    /// Like [`crate::layers::pooling::cpu::backward`].
    pub(crate) fn max_pool_backward(
        &self,
        dtype: DType,
        out: Ptr,
        grads: Ptr,
        found: Ptr,
        of: Windows,
    ) -> Result<()> {
        let pixels = of.count * of.image.height * of.image.width;
        let grid = Grid::row(pixels, threads(of.image.channels));
        let args = of.args(&[out, grads, found]);
        self.launch(kernel!(dtype, "max_pool_backward"), grid, &args)
    }

    /// Like [`crate::layers::channel_norm::cpu::average`], of each of `count` images.
    pub(crate) fn global_average(
        &self,
        dtype: DType,
        out: Ptr,
        images: Ptr,
        count: usize,
        image: Image,
    ) -> Result<()> {
        let count = count * image.channels;
        let args = args![out, images, count, image.height * image.width, image.channels];
        self.launch(kernel!(dtype, "global_average"), Grid::each(count, 256), &args)
    }

    /// The gradient of `count` images, from the gradients of their averages.
    pub(crate) fn global_average_backward(
        &self,
        dtype: DType,
        out: Ptr,
        grads: Ptr,
        count: usize,
        image: Image,
    ) -> Result<()> {
        let pixels = image.height * image.width;
        let args = args![out, grads, pixels, image.channels, 1.0 / pixels as f32];
        let grid = Grid::row(count * pixels, threads(image.channels));
        self.launch(kernel!(dtype, "global_average_backward"), grid, &args)
    }
}
