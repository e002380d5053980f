//! The Gaussian error linear unit.

use crate::cpu::real::in_format;
use crate::error::{Result, check_numbers};
use crate::layers::Cheap;
use crate::layers::pointwise::cpu_gelu as gelu;
use crate::stage::ForwardContext;
use crate::stage::kept::Kept;
use crate::stage::layer::Layer;
use crate::tensor::Tensor;
use crate::tensor::shape::Shape;

/// The formula of a GELU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GeluForm {
    /// `x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))`, as in GPT-2.
    Tanh,
    /// `x/2 (1 + erf(x / sqrt(2)))`.
    Exact,
}

/// The Gaussian error linear unit, on any shape. Hendrycks and Gimpel, "Gaussian error linear units" (2016).
/// It keeps its input.
#[derive(Debug)]
pub struct Gelu {
    name: String,
    form: GeluForm,
}

impl Gelu {
    /// A layer of this name and form.
    pub fn new(name: &str, form: GeluForm) -> Self {
        Self {
            name: name.to_owned(),
            form,
        }
    }

    fn is_exact(&self) -> bool {
        self.form == GeluForm::Exact
    }
}

impl Layer for Gelu {
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
            Some(gpu) => gpu.gelu(
                input.dtype(),
                self.is_exact(),
                output.at(),
                input.at(),
                shape.count(),
            )?,
            None => in_format!(input.dtype(), N => {
                gelu::forward(self.is_exact(), output.numbers_mut::<N>(), input.numbers());
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
                let (dtype, count) = (grad.dtype(), grad.shape().count());
                gpu.gelu_backward(dtype, self.is_exact(), grad.at_mut(&gpu)?, input.at(), count)?;
            }
            None => in_format!(grad.dtype(), N => {
                gelu::backward(self.is_exact(), grad.numbers_mut::<N>(), input.numbers());
            }),
        }
        Ok((Some(grad), Kept::new(ctx, [])))
    }
}

impl Cheap for Gelu {
    fn backward_with_output(&mut self, saved: Kept, mut grad: Tensor) -> Result<(Tensor, Kept, Tensor)> {
        let ctx = saved.ctx;
        let [mut tensor] = saved.into_tensors();
        match grad.gpu()? {
            Some(gpu) => {
                let (dtype, count) = (grad.dtype(), grad.shape().count());
                let at = (grad.at_mut(&gpu)?, tensor.at_mut(&gpu)?);
                gpu.gelu_backward_and_forward(dtype, self.is_exact(), at.0, at.1, count)?;
            }
            None => in_format!(grad.dtype(), N => {
                let (grad, input) = (grad.numbers_mut::<N>(), tensor.numbers_mut());
                gelu::backward_and_forward(self.is_exact(), grad, input);
            }),
        }
        Ok((grad, Kept::new(ctx, []), tensor))
    }
}
