//! Batch norm.

use crate::cuda::launch::{args, kernel};
use crate::cuda::{Gpu, Grid};
use crate::device::DType;
use crate::error::{Error, Result, check_rows};
use crate::layers::channel_norm::cpu::{apply, input_grad, moments, slopes};
use crate::layers::channel_norm::cuda::Channels;
use crate::layers::norm::add_grads;
use crate::parameter::Parameter;
use crate::parameter::init::Init;
use crate::pool::Buffer;
use crate::shape::Shape;
use crate::stage::kept::Kept;
use crate::stage::layer::Layer;
use crate::stage::{ForwardContext, Mode};
use crate::tensor::Tensor;

/// `(x - mean) / sqrt(variance + epsilon) * weight + bias`, for each channel (the innermost dimension):
/// numbers `[.., channels]` to the same. Ioffe and Szegedy, "Batch normalization" (2015).
///
/// In training, mean and variance are taken over all rows of one micro-batch, as in GPipe (Huang et al.,
/// 2019). So they depend on the size of a micro-batch, and not on replicas. In evaluation they are running
/// means of what training saw. At the end of a step these take a share of a tenth of the step's mean: of the
/// micro-batches' means, and of their variances with `n - 1` for `n` rows. With one micro-batch a step this
/// is PyTorch's rule.
///
/// The running means are parameters ([`Parameter::running`]): their "gradient" is the sum over micro-batches.
/// It is added up and sent as all gradients are, so evaluation does not depend on how a model is cut.
///
/// Parameters, as PyTorch names them: `{name}.weight` (starts at 1), `.bias` (0), `.running_mean` (0) and
/// `.running_var` (1), all `[channels]`. Keeps its input, and two numbers for each channel.
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
    /// A layer for this number of channels. PyTorch's `epsilon` is 1e-5.
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

    /// The rows as a GPU's kernels see them.
    fn rows(&self, input: &Shape) -> Channels {
        Channels { rows: input.rows(), width: self.channels, groups: None }
    }

    /// The normalised rows, with the means and variances of a micro-batch or, without, with the running ones.
    fn output(&self, input: &Tensor, stats: Option<&Tensor>) -> Result<Tensor> {
        let [weight, bias, mean, variance] = &self.parameters;
        if let Some(gpu) = input.gpu()? {
            let output = input.beside(input.dims())?;
            let [weight, bias, mean, variance] = [weight, bias, mean, variance].map(|p| p.weights().value());
            let [mean, variance] = match stats {
                Some(stats) => [stats.at(), stats.at().offset(4 * self.channels)],
                None => [mean, variance],
            };
            let (rows, epsilon) = (self.rows(input.shape()), self.epsilon);
            let (count, width) = (rows.count(), rows.width);
            let args = args![&output, input, mean, variance, weight, bias, count, width, epsilon];
            gpu.launch(kernel!(input.dtype(), "batch_norm"), rows.eights(), &args)?;
            return Ok(output);
        }
        let mut output = Tensor::on_host(input.dims())?;
        let wide = input.clone().converted(DType::F32)?;
        match stats.map(|stats| stats.f32().split_at(self.channels)) {
            Some((mean, variance)) => self.write(&mut output, &wide, mean, variance),
            None => self.write(&mut output, &wide, &mean.value, &variance.value),
        }
        output.converted(input.dtype())
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
        let mut stats = input.f32_beside(&[2, self.channels])?;
        if let Some(gpu) = input.gpu()? {
            self.rows(input.shape()).write_stats(&gpu, &stats, input, self.epsilon)?;
            return Ok(stats);
        }
        let (mean, variance) = stats.f32_mut().split_at_mut(self.channels);
        moments(mean, variance, input.clone().converted(DType::F32)?.f32());
        Ok(stats)
    }

    /// Turns the gradient into the input gradient, and gives what is added to the gradients of all four
    /// parameters.
    fn input_grad_on_gpu(
        &self,
        gpu: &Gpu,
        grad: &mut Tensor,
        input: &Tensor,
        stats: &Tensor,
    ) -> Result<Tensor> {
        let adds = Tensor::on_gpu(gpu, DType::F32, &[4, self.channels])?;
        let (of, weight) = (self.rows(input.shape()), self.parameters[0].weights().value());
        let at = grad.at_mut(gpu)?;
        let partials = of.slopes(gpu, grad, input, stats)?;
        let by = gpu.memory_of(3 * of.width * 4)?;
        let args = args![&adds, &by, &partials, stats, weight, of.rows, of.slices(gpu), self.epsilon];
        gpu.launch("batch_slopes", Grid::row(of.width, 128), &args)?;
        let args = args![at, input, stats, &by, of.count(), of.width];
        gpu.launch(kernel!(grad.dtype(), "batch_norm_backward"), of.eights(), &args)?;
        Ok(adds)
    }

    /// The same on the CPU, in `f32`.
    fn input_grad(&self, grad: &mut Tensor, input: &Tensor, stats: &Tensor) -> Result<Tensor> {
        let channels = self.channels;
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
        Ok(adds)
    }
}

impl Layer for BatchNorm {
    fn name(&self) -> &str {
        &self.name
    }

    fn runs_on_gpus(&self) -> bool {
        true
    }

    fn output_shape(&self, input: &Shape) -> Result<Shape> {
        check_rows(input, self.channels)?;
        Ok(*input)
    }

    fn forward(&mut self, ctx: ForwardContext, input: Tensor) -> Result<(Tensor, Kept)> {
        self.output_shape(input.shape())?;
        if ctx.mode == Mode::Evaluate {
            return Ok((self.output(&input, None)?, Kept::new(ctx, [])));
        }
        let stats = self.stats(&input)?;
        Ok((self.output(&input, Some(&stats))?, Kept::new(ctx, [input, stats])))
    }

    fn forward_again(&mut self, ctx: ForwardContext, input: Tensor) -> Result<Kept> {
        self.output_shape(input.shape())?;
        let stats = self.stats(&input)?;
        Ok(Kept::new(ctx, [input, stats]))
    }

    fn backward_input(&mut self, saved: Kept, mut grad: Tensor) -> Result<(Option<Tensor>, Kept)> {
        let ctx = saved.ctx;
        let [input, stats] = saved.into_tensors();
        let pending = |adds: Tensor| Kept::new(ctx, (!self.is_frozen()).then_some(adds));
        if let Some(gpu) = grad.gpu()? {
            let adds = self.input_grad_on_gpu(&gpu, &mut grad, &input, &stats)?;
            return Ok((Some(grad), pending(adds)));
        }
        let dtype = grad.dtype();
        let (mut wide, input) = (grad.converted(DType::F32)?, input.converted(DType::F32)?);
        let adds = self.input_grad(&mut wide, &input, &stats)?;
        Ok((Some(wide.converted(dtype)?), pending(adds)))
    }

    fn backward_weight(&mut self, pending: Kept) -> Result<()> {
        add_grads(self.parameters.each_mut().map(Some), pending)
    }

    fn visit_parameters<'a>(&'a mut self, visit: &mut dyn FnMut(&'a mut Parameter)) {
        self.parameters.iter_mut().for_each(visit);
    }
}
