//! The hyperbolic tangent.

use crate::error::{Result, check_numbers};
use crate::layers::pointwise::cpu_tanh as tanh;
use crate::stage::ForwardContext;
use crate::stage::kept::Kept;
use crate::stage::layer::Layer;
use crate::tensor::Tensor;
use crate::tensor::shape::Shape;

/// `tanh(x)`, on any shape: a number between -1 and 1. It keeps its output, and shares that memory with the
/// next layer. It runs on the CPU, in `f32`.
///
/// ```
/// use pipewright_stages::layers::Tanh;
/// use pipewright_stages::{Layer, Shape};
///
/// let shape = Shape::f32(&[4, 8]);
/// assert_eq!(Tanh::new("tanh").output_shape(&shape)?, shape);
/// # Ok::<(), pipewright_stages::Error>(())
/// ```
#[derive(Debug)]
pub struct Tanh {
    name: String,
}

impl Tanh {
    /// A layer of this name.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
        }
    }
}

impl Layer for Tanh {
    fn name(&self) -> &str {
        &self.name
    }

    fn output_shape(&self, input: &Shape) -> Result<Shape> {
        check_numbers(input)?;
        Ok(*input)
    }

    fn forward(&mut self, ctx: ForwardContext, input: Tensor) -> Result<(Tensor, Kept)> {
        self.output_shape(input.shape())?;
        let mut output = input;
        tanh::forward(output.f32_mut());
        Ok((output.clone(), Kept::new(ctx, [output])))
    }

    fn backward_input(&mut self, saved: Kept, mut grad: Tensor) -> Result<(Option<Tensor>, Kept)> {
        let ctx = saved.ctx;
        let [output] = saved.into_tensors();
        tanh::backward(grad.f32_mut(), output.f32());
        Ok((Some(grad), Kept::new(ctx, [])))
    }
}
