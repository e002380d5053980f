//! The average of an image.

use crate::cpu::parts::{By, cut};
use crate::cuda::Grid;
use crate::cuda::launch::{args, kernel};
use crate::device::DType;
use crate::error::Result;
use crate::layers::channel_norm::cpu::{average, spread};
use crate::layers::conv::cuda::threads;
use crate::layers::conv::images::images;
use crate::shape::Shape;
use crate::stage::ForwardContext;
use crate::stage::kept::Kept;
use crate::stage::layer::Layer;
use crate::tensor::Tensor;

/// The mean of each channel over all pixels of an image: numbers `[batch, height, width, channels]` to
/// `[batch, channels]`. It keeps only the input's shape.
#[derive(Debug)]
pub struct GlobalAverage {
    name: String,
}

impl GlobalAverage {
    /// A layer of this name.
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned() }
    }
}

impl Layer for GlobalAverage {
    fn name(&self) -> &str {
        &self.name
    }

    fn runs_on_gpus(&self) -> bool {
        true
    }

    fn output_shape(&self, input: &Shape) -> Result<Shape> {
        let (count, image) = images(input, None)?;
        Ok(Shape::f32(&[count, image.channels]))
    }

    fn forward(&mut self, ctx: ForwardContext, input: Tensor) -> Result<(Tensor, Kept)> {
        let shape = self.output_shape(input.shape())?;
        let (count, image) = images(input.shape(), None)?;
        let inner = input.without_rows();
        if let Some(gpu) = input.gpu()? {
            let output = input.beside(shape.dims())?;
            let (numbers, pixels) = (count * image.channels, image.height * image.width);
            let args = args![&output, &input, numbers, pixels, image.channels];
            gpu.launch(kernel!(input.dtype(), "global_average"), Grid::each(numbers, 256), &args)?;
            return Ok((output, Kept::new(ctx, [inner])));
        }
        let dtype = input.dtype();
        let input = input.converted(DType::F32)?;
        let mut output = Tensor::on_host(shape.dims())?;
        let rows = (By(output.f32_mut(), image.channels), By(input.f32(), image.count()));
        cut(rows, image.count(), |_, (outs, all)| {
            let pairs = outs.chunks_exact_mut(image.channels).zip(all.chunks_exact(image.count()));
            pairs.for_each(|(out, numbers)| average(out, numbers));
        });
        Ok((output.converted(dtype)?, Kept::new(ctx, [inner])))
    }

    fn backward_input(&mut self, saved: Kept, grad: Tensor) -> Result<(Option<Tensor>, Kept)> {
        let ctx = saved.ctx;
        let [inner] = saved.into_tensors();
        let shape = inner.shape().with_first(grad.dims()[0]);
        let (count, image) = images(&shape, None)?;
        let pixels = image.height * image.width;
        let factor = 1.0 / pixels as f32;
        if let Some(gpu) = grad.gpu()? {
            let input_grad = grad.beside(shape.dims())?;
            let args = args![&input_grad, &grad, pixels, image.channels, factor];
            let grid = Grid::row(count * pixels, threads(image.channels));
            gpu.launch(kernel!(grad.dtype(), "global_average_backward"), grid, &args)?;
            return Ok((Some(input_grad), Kept::new(ctx, [])));
        }
        let dtype = grad.dtype();
        let grad = grad.converted(DType::F32)?;
        let mut input_grad = Tensor::on_host(shape.dims())?;
        let rows = (By(input_grad.f32_mut(), image.count()), By(grad.f32(), image.channels));
        cut(rows, image.count(), |_, (outs, grads)| {
            let pairs = outs.chunks_exact_mut(image.count()).zip(grads.chunks_exact(image.channels));
            pairs.for_each(|(out, grad)| spread(out, grad, factor));
        });
        Ok((Some(input_grad.converted(dtype)?), Kept::new(ctx, [])))
    }
}
