//! Layer normalisation.

use super::{Cheap, check_rows};
use crate::cpu::real::in_format;
use crate::cpu::{elementwise, norm};
use crate::cuda::{Gpu, Ptr, Rows};
use crate::device::DType;
use crate::error::Result;
use crate::kept::Kept;
use crate::layer::Layer;
use crate::parameter::{Init, Parameter};
use crate::shape::Shape;
use crate::stage::ForwardContext;
use crate::tensor::Tensor;

/// Added to the variance, as in PyTorch.
const EPSILON: f32 = 1e-5;

/// Normalises the innermost dimension to mean 0 and standard deviation 1, then scales and shifts it. Ba,
/// Kiros and Hinton, "Layer normalization" (2016).
///
/// Parameters: `{name}.weight` (starts at 1) and `{name}.bias` (starts at 0). It keeps its input and two
/// numbers for each row.
#[derive(Debug)]
pub struct LayerNorm {
    name: String,
    width: usize,
    weight: Parameter,
    bias: Parameter,
}

impl LayerNorm {
    /// A layer for rows of `width` numbers.
    pub fn new(name: &str, width: usize) -> Self {
        Self {
            name: name.to_owned(),
            width,
            weight: Parameter::new(format!("{name}.weight"), &[width], Init::Ones, 0),
            bias: Parameter::new(format!("{name}.bias"), &[width], Init::Zeros, 0),
        }
    }
}

impl LayerNorm {
    /// Turns the output gradient into the input gradient, and returns the gradients of the parameters.
    fn input_grad(&self, grad: &mut Tensor, input: &Tensor, stats: &Tensor) -> Result<Tensor> {
        if let Some(gpu) = grad.gpu()? {
            let weight_grads = Tensor::on_gpu(&gpu, DType::F32, &[2, self.width])?;
            let rows = self.rows(input);
            let (at, gain) = (grad.at_mut(&gpu)?, self.weight.weights().value());
            let scratch = gpu.memory_of(Gpu::layer_norm_scratch(rows))?;
            gpu.layer_norm_backward(
                grad.dtype(),
                at,
                weight_grads.at(),
                at,
                input.at(),
                stats.at(),
                gain,
                rows,
                scratch.at(),
            )?;
            return Ok(weight_grads);
        }
        let mut weight_grads = Tensor::zeros(&[2, self.width]);
        let (gain_grad, shift_grad) = weight_grads.f32_mut().split_at_mut(self.width);
        let gain = &self.weight.value;
        in_format!(grad.dtype(), N => {
            let (grad, input) = (grad.numbers_mut::<N>(), input.numbers());
            norm::backward(grad, input, stats.f32(), gain, gain_grad, shift_grad);
        });
        Ok(weight_grads)
    }

    fn rows(&self, input: &Tensor) -> Rows {
        Rows {
            count: input.shape().rows(),
            width: self.width,
        }
    }

    /// The addresses of scale and shift on the GPU.
    fn at(&self) -> [Ptr; 2] {
        [&self.weight, &self.bias].map(|parameter| parameter.weights().value())
    }
}

impl Cheap for LayerNorm {
    fn backward_with_output(&mut self, saved: Kept, mut grad: Tensor) -> Result<(Tensor, Kept, Tensor)> {
        let ctx = saved.ctx;
        let [input, stats] = saved.into_tensors();
        let weight_grads = self.input_grad(&mut grad, &input, &stats)?;
        let mut output = input.beside(input.dims())?;
        if let Some(gpu) = input.gpu()? {
            let [gain, shift] = self.at();
            let (out, stats, rows) = (output.at(), stats.at(), self.rows(&input));
            gpu.layer_norm_again(input.dtype(), out, stats, input.at(), gain, shift, rows)?;
        } else {
            let (gain, shift) = (&self.weight.value, &self.bias.value);
            in_format!(input.dtype(), N => {
                let (output, input) = (output.numbers_mut::<N>(), input.numbers());
                norm::forward_again(output, stats.f32(), input, gain, shift);
            });
        }
        Ok((grad, Kept::new(ctx, [weight_grads]), output))
    }
}

impl Layer for LayerNorm {
    fn name(&self) -> &str {
        &self.name
    }

    fn runs_on_gpus(&self) -> bool {
        true
    }

    fn output_shape(&self, input: &Shape) -> Result<Shape> {
        check_rows(input, self.width)?;
        Ok(*input)
    }

    fn forward(&mut self, ctx: ForwardContext, input: Tensor) -> Result<(Tensor, Kept)> {
        let shape = self.output_shape(input.shape())?;
        let mut output = input.beside(shape.dims())?;
        if let Some(gpu) = input.gpu()? {
            let stats = Tensor::on_gpu(&gpu, DType::F32, &[shape.rows(), 2])?;
            let [gain, shift] = self.at();
            let (out, sums, rows) = (output.at(), stats.at(), self.rows(&input));
            gpu.layer_norm(input.dtype(), out, sums, input.at(), gain, shift, rows, EPSILON)?;
            return Ok((output, Kept::new(ctx, [input, stats])));
        }
        let mut stats = Tensor::on_host(&[shape.rows(), 2])?;
        let (gain, shift) = (&self.weight.value, &self.bias.value);
        in_format!(input.dtype(), N => {
            let (output, from) = (output.numbers_mut::<N>(), input.numbers());
            norm::forward(output, stats.f32_mut(), from, gain, shift, EPSILON);
        });
        Ok((output, Kept::new(ctx, [input, stats])))
    }

    fn backward_input(&mut self, saved: Kept, mut grad: Tensor) -> Result<(Option<Tensor>, Kept)> {
        let ctx = saved.ctx;
        let [input, stats] = saved.into_tensors();
        let weight_grads = self.input_grad(&mut grad, &input, &stats)?;
        Ok((Some(grad), Kept::new(ctx, [weight_grads])))
    }

    fn backward_weight(&mut self, pending: Kept) -> Result<()> {
        let [weight_grads] = pending.into_tensors();
        if let Some(gpu) = weight_grads.gpu()? {
            let [gain_grad, shift_grad] = [0, self.width].map(|from| weight_grads.at().offset(4 * from));
            self.weight.weights().add_grad(&gpu, gain_grad)?;
            return self.bias.weights().add_grad(&gpu, shift_grad);
        }
        let (gain_grad, shift_grad) = weight_grads.f32().split_at(self.width);
        elementwise::add(&mut self.weight.grad, gain_grad);
        elementwise::add(&mut self.bias.grad, shift_grad);
        Ok(())
    }

    fn visit_parameters<'a>(&'a mut self, visit: &mut dyn FnMut(&'a mut Parameter)) {
        visit(&mut self.weight);
        visit(&mut self.bias);
    }
}
