//! The logistic sigmoid, for gates.

use crate::cpu::real::in_format;
use crate::error::{Result, check_numbers};
use crate::layers::pointwise::cpu_sigmoid as sigmoid;
use crate::stage::ForwardContext;
use crate::stage::kept::Kept;
use crate::stage::layer::Layer;
use crate::tensor::Tensor;
use crate::tensor::shape::Shape;

/// `1 / (1 + exp(-x))`, on any shape: a number between 0 and 1, for a gate. It keeps its input.
#[derive(Debug)]
pub struct Sigmoid {
    name: String,
}

impl Sigmoid {
    /// A layer of this name.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
        }
    }
}

impl Layer for Sigmoid {
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
        let shape = self.output_shape(input.shape())?;
        let mut output = input.beside(shape.dims())?;
        match input.gpu()? {
            Some(gpu) => gpu.sigmoid(input.dtype(), output.at(), input.at(), shape.count())?,
            None => in_format!(input.dtype(), N => {
                sigmoid::forward::<N>(output.numbers_mut(), input.numbers());
            }),
        }
        Ok((output, Kept::new(ctx, [input])))
    }

    fn forward_again(&mut self, ctx: ForwardContext, input: Tensor) -> Result<Kept> {
        Ok(Kept::new(ctx, [input]))
    }

    fn backward_input(&mut self, saved: Kept, mut grad: Tensor) -> Result<(Option<Tensor>, Kept)> {
        let ctx = saved.ctx;
        let [input] = saved.into_tensors();
        match grad.gpu()? {
            Some(gpu) => {
                let count = grad.shape().count();
                gpu.sigmoid_backward(grad.dtype(), grad.at_mut(&gpu)?, input.at(), count)?;
            }
            None => in_format!(grad.dtype(), N => {
                sigmoid::backward::<N>(grad.numbers_mut(), input.numbers());
            }),
        }
        Ok((Some(grad), Kept::new(ctx, [])))
    }
}
