//! Unflattening: what follows the outermost dimension gets other dimensions.

use super::check_numbers;
use crate::error::{Error, Result};
use crate::kept::Kept;
use crate::layer::Layer;
use crate::shape::Shape;
use crate::stage::ForwardContext;
use crate::tensor::Tensor;

/// `[batch, ..]` to `[batch, height, width, channels]`: gives images their dimensions, such as a channel to
/// images of one color. It copies nothing and keeps only the input's shape.
#[derive(Debug)]
pub struct Unflatten {
    name: String,
    dims: [usize; 3],
}

impl Unflatten {
    /// A layer to these dimensions.
    pub fn new(name: &str, dims: [usize; 3]) -> Self {
        Self {
            name: name.to_owned(),
            dims,
        }
    }
}

impl Layer for Unflatten {
    fn name(&self) -> &str {
        &self.name
    }

    fn runs_on_gpus(&self) -> bool {
        true
    }

    fn output_shape(&self, input: &Shape) -> Result<Shape> {
        check_numbers(input)?;
        let [height, width, channels] = self.dims;
        match input.dims() {
            [batch, inner @ ..] if inner.iter().product::<usize>() == height * width * channels => {
                Ok(Shape::f32(&[*batch, height, width, channels]))
            }
            _ => {
                let expected = format!("f32[batch, ..] with {height} x {width} x {channels} numbers a row");
                Err(Error::shape(expected, input))
            }
        }
    }

    fn forward(&mut self, ctx: ForwardContext, input: Tensor) -> Result<(Tensor, Kept)> {
        let shape = self.output_shape(input.shape())?;
        // An empty tensor carries the inner dimensions to backward.
        let inner = Tensor::scratch(input.shape().with_first(0).dims());
        Ok((input.reshape(shape.dims())?, Kept::new(ctx, [inner])))
    }

    fn backward_input(&mut self, saved: Kept, grad: Tensor) -> Result<(Option<Tensor>, Kept)> {
        let ctx = saved.ctx;
        let [inner] = saved.into_tensors();
        let shape = inner.shape().with_first(grad.dims()[0]);
        Ok((Some(grad.reshape(shape.dims())?), Kept::new(ctx, [])))
    }
}
