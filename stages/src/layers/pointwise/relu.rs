//! The rectified linear unit.

use crate::cpu::elementwise::{relu, relu_grad};
use crate::cpu::real::in_format;
use crate::error::{Result, check_numbers};
use crate::stage::ForwardContext;
use crate::stage::kept::Kept;
use crate::stage::layer::Layer;
use crate::tensor::Tensor;
use crate::tensor::shape::Shape;

/// `max(x, 0)`, on any shape. It keeps its output, and shares that memory with the next layer.
#[derive(Debug)]
pub struct Relu {
    name: String,
}

impl Relu {
    /// A layer of this name.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
        }
    }
}

impl Layer for Relu {
    fn name(&self) -> &str {
        &self.name
    }

    fn runs_on_gpus(&self) -> bool {
        true
    }

    fn output_shape(&self, input: &Shape) -> Result<Shape> {
        check_numbers(input)?;
        Ok(*input)
    }

    fn forward(&mut self, ctx: ForwardContext, input: Tensor) -> Result<(Tensor, Kept)> {
        self.output_shape(input.shape())?;
        let mut output = input;
        match output.gpu()? {
            Some(gpu) => gpu.relu(output.dtype(), output.at_mut(&gpu)?, output.shape().count())?,
            None => in_format!(output.dtype(), N => relu(output.numbers_mut::<N>())),
        }
        Ok((output.clone(), Kept::new(ctx, [output])))
    }

    fn backward_input(&mut self, saved: Kept, mut grad: Tensor) -> Result<(Option<Tensor>, Kept)> {
        let ctx = saved.ctx;
        let [output] = saved.into_tensors();
        match grad.gpu()? {
            Some(gpu) => {
                let count = grad.shape().count();
                gpu.relu_grad(grad.dtype(), grad.at_mut(&gpu)?, output.at(), count)?;
            }
            None => in_format!(grad.dtype(), N => {
                relu_grad(grad.numbers_mut::<N>(), output.numbers());
            }),
        }
        Ok((Some(grad), Kept::new(ctx, [])))
    }
}
