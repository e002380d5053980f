//! The average of an image.

use super::images::images;
use crate::cpu::channels::{average, spread};
use crate::cpu::parts::{By, cut};
use crate::error::Result;
use crate::kept::Kept;
use crate::layer::Layer;
use crate::shape::Shape;
use crate::stage::ForwardContext;
use crate::tensor::Tensor;

/// The mean of each channel over all pixels of an image: numbers `[batch, height, width, channels]` to
/// `[batch, channels]`. It keeps only the input's shape. It runs on the CPU only, in `f32`.
#[derive(Debug)]
pub struct GlobalAverage {
    name: String,
}

impl GlobalAverage {
    /// A layer of this name.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
        }
    }
}

impl Layer for GlobalAverage {
    fn name(&self) -> &str {
        &self.name
    }

    fn output_shape(&self, input: &Shape) -> Result<Shape> {
        let (count, image) = images(input, None)?;
        Ok(Shape::f32(&[count, image.channels]))
    }

    fn forward(&mut self, ctx: ForwardContext, input: Tensor) -> Result<(Tensor, Kept)> {
        let shape = self.output_shape(input.shape())?;
        let (_, image) = images(input.shape(), None)?;
        let mut output = Tensor::on_host(shape.dims())?;
        let rows = (
            By(output.f32_mut(), image.channels),
            By(input.f32(), image.count()),
        );
        cut(rows, image.count(), |_, (outs, all)| {
            let pairs = outs
                .chunks_exact_mut(image.channels)
                .zip(all.chunks_exact(image.count()));
            pairs.for_each(|(out, numbers)| average(out, numbers));
        });
        // An empty tensor carries the inner dimensions to backward.
        let inner = Tensor::scratch(input.shape().with_first(0).dims());
        Ok((output, Kept::new(ctx, [inner])))
    }

    fn backward_input(&mut self, saved: Kept, grad: Tensor) -> Result<(Option<Tensor>, Kept)> {
        let ctx = saved.ctx;
        let [inner] = saved.into_tensors();
        let shape = inner.shape().with_first(grad.dims()[0]);
        let (_, image) = images(&shape, None)?;
        let factor = 1.0 / (image.height * image.width) as f32;
        let mut input_grad = Tensor::on_host(shape.dims())?;
        let rows = (
            By(input_grad.f32_mut(), image.count()),
            By(grad.f32(), image.channels),
        );
        cut(rows, image.count(), |_, (outs, grads)| {
            let pairs = outs
                .chunks_exact_mut(image.count())
                .zip(grads.chunks_exact(image.channels));
            pairs.for_each(|(out, grad)| spread(out, grad, factor));
        });
        Ok((Some(input_grad), Kept::new(ctx, [])))
    }
}
