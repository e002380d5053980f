//! Batch norm.

use super::check_rows;
use crate::cpu::channels::{apply, input_grad, moments, slopes};
use crate::cpu::elementwise;
use crate::error::{Error, Result};
use crate::init::Init;
use crate::kept::Kept;
use crate::layer::Layer;
use crate::parameter::Parameter;
use crate::pool::Buffer;
use crate::shape::Shape;
use crate::stage::{ForwardContext, Mode};
use crate::tensor::Tensor;

/// `(x - mean) / sqrt(variance + epsilon) * weight + bias`, for each channel (the innermost dimension):
/// numbers `[.., channels]` to the same. Ioffe and Szegedy, "Batch normalization" (2015).
///
/// In training, mean and variance are those of one micro-batch, over all its rows, as in GPipe (Huang et al.,
/// 2019). So they depend on the size of a micro-batch, and not on replicas. In evaluation they are running
/// means of what training saw. At the end of a step these take a share of a tenth of the step's mean: of the
/// micro-batches' means, and of their variances with `n - 1` for `n` rows. With one micro-batch a step this
/// is PyTorch's rule.
///
/// The running means are parameters ([`Parameter::running`]): their "gradient" is the sum over micro-batches.
/// It is added up and sent as all gradients are, so evaluation does not depend on how a model is cut.
///
/// Parameters, as PyTorch names them: `{name}.weight` (starts at 1), `.bias` (0), `.running_mean` (0) and
/// `.running_var` (1), all `[channels]`. Keeps its input, and three numbers for each channel. It runs on the
/// CPU only, in `f32`.
#[derive(Debug)]
pub struct BatchNorm {
    name: String,
    channels: usize,
    epsilon: f32,
    /// Weight, bias, running mean, running variance.
    parameters: [Parameter; 4],
}

/// The share of a step in a running mean.
const SHARE: f32 = 0.1;

impl BatchNorm {
    /// A layer for so many channels. PyTorch's `epsilon` is 1e-5.
    pub fn new(name: &str, channels: usize, epsilon: f32) -> Self {
        let parameter = |which, init| Parameter::new(format!("{name}.{which}"), &[channels], init, 0);
        Self {
            name: name.to_owned(),
            channels,
            epsilon,
            parameters: [
                parameter("weight", Init::Ones),
                parameter("bias", Init::Zeros),
                parameter("running_mean", Init::Zeros).running(SHARE),
                parameter("running_var", Init::Ones).running(SHARE),
            ],
        }
    }

    fn is_frozen(&self) -> bool {
        self.parameters.iter().all(Parameter::is_frozen)
    }

    /// Writes the normalised rows.
    fn write(&self, output: &mut Tensor, input: &Tensor, mean: &[f32], variance: &[f32]) {
        let [weight, bias, ..] = &self.parameters;
        let mut scale = Buffer::pooled(self.channels);
        for (scale, (weight, variance)) in scale.iter_mut().zip(weight.value.iter().zip(variance)) {
            *scale = weight / (variance + self.epsilon).sqrt();
        }
        apply(output.f32_mut(), input.f32(), [mean, &scale, &bias.value]);
    }

    /// The means and variances of a micro-batch.
    fn stats(&self, input: &Tensor) -> Result<Tensor> {
        if input.shape().rows() < 2 {
            let expected = "at least 2 rows or pixels, which batch norm needs to train";
            return Err(Error::shape(expected, input.shape()));
        }
        let mut stats = Tensor::on_host(&[2, self.channels])?;
        let (mean, variance) = stats.f32_mut().split_at_mut(self.channels);
        moments(mean, variance, input.f32());
        Ok(stats)
    }
}

impl Layer for BatchNorm {
    fn name(&self) -> &str {
        &self.name
    }

    fn output_shape(&self, input: &Shape) -> Result<Shape> {
        check_rows(input, self.channels)?;
        Ok(*input)
    }

    fn forward(&mut self, ctx: ForwardContext, input: Tensor) -> Result<(Tensor, Kept)> {
        let shape = self.output_shape(input.shape())?;
        let mut output = Tensor::on_host(shape.dims())?;
        if ctx.mode == Mode::Evaluate {
            let [.., mean, variance] = &self.parameters;
            self.write(&mut output, &input, &mean.value, &variance.value);
            return Ok((output, Kept::new(ctx, [])));
        }
        let stats = self.stats(&input)?;
        let (mean, variance) = stats.f32().split_at(self.channels);
        self.write(&mut output, &input, mean, variance);
        Ok((output, Kept::new(ctx, [input, stats])))
    }

    fn forward_again(&mut self, ctx: ForwardContext, input: Tensor) -> Result<Kept> {
        self.output_shape(input.shape())?;
        let stats = self.stats(&input)?;
        Ok(Kept::new(ctx, [input, stats]))
    }

    fn backward_input(&mut self, saved: Kept, mut grad: Tensor) -> Result<(Option<Tensor>, Kept)> {
        let (ctx, channels) = (saved.ctx, self.channels);
        let [input, stats] = saved.into_tensors();
        let (mean, variance) = stats.f32().split_at(channels);
        let count = input.shape().rows() as f32;
        // What is added to the parameters' gradients.
        let mut adds = Tensor::on_host(&[4, channels])?;
        let (weights, running) = adds.f32_mut().split_at_mut(2 * channels);
        let (weight, bias) = weights.split_at_mut(channels);
        slopes(bias, weight, grad.f32(), input.f32(), mean);
        let mut by = Buffer::pooled(3 * channels);
        let (scale, rest) = by.split_at_mut(channels);
        let (slope, shift) = rest.split_at_mut(channels);
        for channel in 0..channels {
            let deviation = 1.0 / (variance[channel] + self.epsilon).sqrt();
            weight[channel] *= deviation;
            scale[channel] = self.parameters[0].value[channel] * deviation;
            slope[channel] = -scale[channel] * deviation * weight[channel] / count;
            shift[channel] = -scale[channel] * bias[channel] / count;
        }
        running[..channels].copy_from_slice(mean);
        for (out, variance) in running[channels..].iter_mut().zip(variance) {
            *out = variance * (count / (count - 1.0));
        }
        input_grad(grad.f32_mut(), input.f32(), [mean, scale, slope, shift]);
        Ok((Some(grad), Kept::new(ctx, (!self.is_frozen()).then_some(adds))))
    }

    fn backward_weight(&mut self, pending: Kept) -> Result<()> {
        if self.is_frozen() {
            return Ok(());
        }
        let [adds] = pending.into_tensors();
        for (parameter, adds) in self
            .parameters
            .iter_mut()
            .zip(adds.f32().chunks_exact(self.channels))
        {
            if !parameter.is_frozen() {
                elementwise::add(&mut parameter.grad, adds);
            }
        }
        Ok(())
    }

    fn visit_parameters<'a>(&'a mut self, visit: &mut dyn FnMut(&'a mut Parameter)) {
        self.parameters.iter_mut().for_each(visit);
    }
}
