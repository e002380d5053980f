//! Flattening: all dimensions but the outermost become one.

use super::reshape::{reshaped, restored};
use crate::error::{Error, Result, check_numbers};
use crate::stage::ForwardContext;
use crate::stage::kept::Kept;
use crate::stage::layer::Layer;
use crate::tensor::Tensor;
use crate::tensor::shape::Shape;

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
        reshaped(ctx, input, &shape)
    }

    fn backward_input(&mut self, saved: Kept, grad: Tensor) -> Result<(Option<Tensor>, Kept)> {
        restored(saved, grad)
    }
}
