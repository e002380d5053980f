//! Flattening: all dimensions but the outermost become one.

use super::check_numbers;
use crate::error::{Error, Result};
use crate::kept::Kept;
use crate::layer::Layer;
use crate::shape::Shape;
use crate::stage::ForwardContext;
use crate::tensor::Tensor;

/// `[batch, ..]` to `[batch, n]`. It copies nothing and keeps only the input's shape.
#[derive(Debug)]
pub struct Flatten {
    name: String,
}

impl Flatten {
    /// A layer of this name.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
        }
    }
}

impl Layer for Flatten {
    fn name(&self) -> &str {
        &self.name
    }

    fn runs_on_gpus(&self) -> bool {
        true
    }

    fn output_shape(&self, input: &Shape) -> Result<Shape> {
        check_numbers(input)?;
        match input.dims() {
            [] => Err(Error::shape("f32[batch, ..]", input)),
            [batch, inner @ ..] => Ok(Shape::f32(&[*batch, inner.iter().product()])),
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
