//! What the layers share that normalise rows.

pub(crate) mod cpu;
pub(crate) mod cuda;
pub(crate) mod layer_norm;
pub(crate) mod rms_norm;

use super::Cheap;
use crate::cpu::elementwise;
use crate::cpu::real::in_format;
use crate::cuda::{Gpu, Ptr};
use crate::device::DType;
use crate::error::{Result, check_rows};
use crate::layers::norm::cpu as norm;
use crate::layers::norm::cuda::Rows;
use crate::parameter::Parameter;
use crate::parameter::init::Init;
use crate::stage::ForwardContext;
use crate::stage::kept::Kept;
use crate::stage::layer::{Layer, check_added};
use crate::tensor::Tensor;
use crate::tensor::shape::Shape;

/// Normalises rows, then scales them, and shifts them if it has a bias. Without a bias it does not subtract
/// the mean. Keeps its input and two numbers for each row.
#[derive(Debug)]
pub(crate) struct RowNorm {
    name: String,
    width: usize,
    epsilon: f32,
    weight: Parameter,
    bias: Option<Parameter>,
}

impl RowNorm {
    /// A layer for rows of `width` numbers. The weight starts at 1, the bias at 0.
    pub(crate) fn new(name: &str, width: usize, epsilon: f32, has_bias: bool) -> Self {
        let parameter = |which, init| Parameter::new(format!("{name}.{which}"), &[width], init, 0);
        Self {
            name: name.to_owned(),
            width,
            epsilon,
            weight: parameter("weight", Init::Ones),
            bias: has_bias.then(|| parameter("bias", Init::Zeros)),
        }
    }
}

impl RowNorm {
    fn is_frozen(&self) -> bool {
        self.weight.is_frozen() && self.bias.as_ref().is_none_or(Parameter::is_frozen)
    }

    /// What backward-weight needs.
    fn pending(&self, ctx: ForwardContext, weight_grads: Tensor) -> Kept {
        Kept::new(ctx, (!self.is_frozen()).then_some(weight_grads))
    }

    /// Turns the output gradient into the input gradient, and adds `onto` to that, if there is such. Returns
    /// the gradients of the parameters.
    fn input_grad(
        &self,
        grad: &mut Tensor,
        onto: Option<&Tensor>,
        input: &Tensor,
        stats: &Tensor,
    ) -> Result<Tensor> {
        onto.map_or(Ok(()), |onto| check_added(input.shape(), onto))?;
        if let Some(gpu) = grad.gpu()? {
            let weight_grads = Tensor::on_gpu(&gpu, DType::F32, &[2, self.width])?;
            let rows = self.rows(input);
            let gain = self.weight.weights().value();
            let scratch = gpu.memory_of(Gpu::layer_norm_scratch(rows))?;
            gpu.layer_norm_backward(
                grad.dtype(),
                grad.at_mut(&gpu)?,
                weight_grads.at(),
                onto.map_or(Ptr::NONE, Tensor::at),
                input.at(),
                stats.at(),
                gain,
                self.bias.is_some(),
                rows,
                scratch.at(),
            )?;
            return Ok(weight_grads);
        }
        let mut weight_grads = Tensor::zeros(&[2, self.width]);
        let (gain_grad, shift_grad) = weight_grads.f32_mut().split_at_mut(self.width);
        let shift_grad = self.bias.is_some().then_some(shift_grad);
        let gain = &self.weight.value;
        in_format!(grad.dtype(), N => {
            let (grad, input) = (grad.numbers_mut::<N>(), input.numbers());
            norm::backward(grad, input, stats.f32(), gain, gain_grad, shift_grad);
        });
        onto.map_or(Ok(()), |onto| grad.add(onto))?;
        Ok(weight_grads)
    }

    /// As [`RowNorm::backward`], and computes the output again.
    fn backward_and_output(
        &self,
        saved: Kept,
        mut grad: Tensor,
        onto: Option<&Tensor>,
    ) -> Result<(Tensor, Kept, Tensor)> {
        let ctx = saved.ctx;
        let [input, stats] = saved.into_tensors();
        let weight_grads = self.input_grad(&mut grad, onto, &input, &stats)?;
        let mut output = input.beside(input.dims())?;
        if let Some(gpu) = input.gpu()? {
            let [gain, shift] = self.at();
            let (out, stats, rows) = (output.at(), stats.at(), self.rows(&input));
            gpu.layer_norm_again(input.dtype(), out, stats, input.at(), gain, shift, rows)?;
        } else {
            let (gain, shift) = self.values();
            in_format!(input.dtype(), N => {
                let (output, input) = (output.numbers_mut::<N>(), input.numbers());
                norm::forward_again(output, stats.f32(), input, gain, shift);
            });
        }
        Ok((grad, self.pending(ctx, weight_grads), output))
    }

    /// The input gradient, with `onto` added to it, if there is such, and what backward-weight needs.
    fn backward(&self, saved: Kept, mut grad: Tensor, onto: Option<&Tensor>) -> Result<(Tensor, Kept)> {
        let ctx = saved.ctx;
        let [input, stats] = saved.into_tensors();
        let weight_grads = self.input_grad(&mut grad, onto, &input, &stats)?;
        Ok((grad, self.pending(ctx, weight_grads)))
    }

    fn rows(&self, input: &Tensor) -> Rows {
        Rows {
            count: input.shape().rows(),
            width: self.width,
        }
    }

    /// The addresses of scale and shift on the GPU.
    fn at(&self) -> [Ptr; 2] {
        let at = |parameter: &Parameter| parameter.weights().value();
        [at(&self.weight), self.bias.as_ref().map_or(Ptr::NONE, at)]
    }

    /// Scale and shift on the CPU.
    fn values(&self) -> (&[f32], Option<&[f32]>) {
        (&self.weight.value, self.bias.as_ref().map(|bias| &bias.value[..]))
    }
}

impl Cheap for RowNorm {
    fn backward_with_output(&mut self, saved: Kept, grad: Tensor) -> Result<(Tensor, Kept, Tensor)> {
        self.backward_and_output(saved, grad, None)
    }

    fn backward_with_output_onto(
        &mut self,
        saved: Kept,
        grad: Tensor,
        onto: Tensor,
    ) -> Result<(Tensor, Kept, Tensor)> {
        self.backward_and_output(saved, grad, Some(&onto))
    }
}

impl Layer for RowNorm {
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
            gpu.layer_norm(
                input.dtype(),
                out,
                sums,
                input.at(),
                gain,
                shift,
                rows,
                self.epsilon,
            )?;
            return Ok((output, Kept::new(ctx, [input, stats])));
        }
        let mut stats = Tensor::on_host(&[shape.rows(), 2])?;
        let (gain, shift) = self.values();
        in_format!(input.dtype(), N => {
            let (output, from) = (output.numbers_mut::<N>(), input.numbers());
            norm::forward(output, stats.f32_mut(), from, gain, shift, self.epsilon);
        });
        Ok((output, Kept::new(ctx, [input, stats])))
    }

    fn backward_input(&mut self, saved: Kept, grad: Tensor) -> Result<(Option<Tensor>, Kept)> {
        let (input_grad, pending) = self.backward(saved, grad, None)?;
        Ok((Some(input_grad), pending))
    }

    fn backward_input_onto(&mut self, saved: Kept, grad: Tensor, onto: Tensor) -> Result<(Tensor, Kept)> {
        self.backward(saved, grad, Some(&onto))
    }

    fn backward_weight(&mut self, pending: Kept) -> Result<()> {
        if self.is_frozen() {
            return Ok(());
        }
        let [weight_grads] = pending.into_tensors();
        let parameters = [Some(&mut self.weight), self.bias.as_mut()];
        for (which, parameter) in parameters.into_iter().flatten().enumerate() {
            if parameter.is_frozen() {
                continue;
            }
            let start = which * self.width;
            match weight_grads.gpu()? {
                Some(gpu) => parameter
                    .weights()
                    .add_grad(&gpu, weight_grads.at().offset(4 * start))?,
                None => elementwise::add(&mut parameter.grad, &weight_grads.f32()[start..][..self.width]),
            }
        }
        Ok(())
    }

    fn visit_parameters<'a>(&'a mut self, visit: &mut dyn FnMut(&'a mut Parameter)) {
        visit(&mut self.weight);
        self.bias.iter_mut().for_each(visit);
    }
}
