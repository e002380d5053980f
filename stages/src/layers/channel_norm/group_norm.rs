//! Group norm.

use crate::cpu::parts::{By, cut};
use crate::cuda::launch::{args, kernel};
use crate::cuda::{Gpu, Grid};
use crate::device::DType;
use crate::error::{Error, Result, check_positive};
use crate::layers::channel_norm::cpu::{apply, input_grad, moments, slopes};
use crate::layers::channel_norm::cuda::{Channels, Groups};
use crate::layers::conv::cpu::window::Image;
use crate::layers::conv::images::images;
use crate::layers::norm::add_grads;
use crate::parameter::Parameter;
use crate::parameter::init::Init;
use crate::pool::Buffer;
use crate::shape::Shape;
use crate::stage::ForwardContext;
use crate::stage::kept::Kept;
use crate::stage::layer::Layer;
use crate::tensor::Tensor;

/// `(x - mean) / sqrt(variance + epsilon) * weight + bias`, where mean and variance are taken over a group of
/// channels and all pixels of one image: numbers `[batch, height, width, channels]` to the same. Wu and He,
/// "Group normalization" (2018).
///
/// No number depends on other images, so neither on the size of a micro-batch. Groups are consecutive
/// channels. Parameters: `{name}.weight` (starts at 1) and `{name}.bias` (0), both `[channels]`. Keeps its
/// input, and two numbers for each group of an image.
#[derive(Debug)]
pub struct GroupNorm {
    name: String,
    groups: usize,
    channels: usize,
    epsilon: f32,
    weight: Parameter,
    bias: Parameter,
}

impl GroupNorm {
    /// A layer for this number of channels in this number of groups. PyTorch's `epsilon` is 1e-5.
    ///
    /// # Errors
    /// When the groups do not divide the channels.
    pub fn new(name: &str, groups: usize, channels: usize, epsilon: f32) -> Result<Self> {
        check_positive(&[("groups", groups), ("channels", channels)])?;
        if !channels.is_multiple_of(groups) {
            return Err(Error::new(format!(
                "{channels} channels cannot be divided into {groups} groups: choose groups that divide the \
                 channels"
            )));
        }
        let parameter = |which, init| Parameter::new(format!("{name}.{which}"), &[channels], init, 0);
        Ok(Self {
            name: name.to_owned(),
            groups,
            channels,
            epsilon,
            weight: parameter("weight", Init::Ones),
            bias: parameter("bias", Init::Zeros),
        })
    }

    fn is_frozen(&self) -> bool {
        self.weight.is_frozen() && self.bias.is_frozen()
    }

    /// Images as a GPU's kernels see them.
    fn images(&self, count: usize, image: Image) -> (Channels, Groups) {
        let pixels = image.height * image.width;
        let groups = Groups { count: self.groups, pixels };
        let channels = Channels { rows: count * pixels, width: self.channels, groups: Some(groups) };
        (channels, groups)
    }

    fn forward_on_gpu(&self, gpu: &Gpu, input: &Tensor) -> Result<[Tensor; 2]> {
        let (count, image) = images(input.shape(), Some(self.channels))?;
        let (output, dtype) = (input.beside(input.dims())?, input.dtype());
        let stats = Tensor::on_gpu(gpu, DType::F32, &[count, self.groups, 2])?;
        let (of, groups) = self.images(count, image);
        of.write_stats(gpu, &stats, input, self.epsilon)?;
        let [weight, bias] = [&self.weight, &self.bias].map(|parameter| parameter.weights().value());
        let (all, width, image) = (of.count(), of.width, groups.pixels * of.width);
        let args = args![&output, input, &stats, weight, bias, all, image, width, groups.count];
        gpu.launch(kernel!(dtype, "group_norm"), of.eights(), &args)?;
        Ok([output, stats])
    }

    /// Turns the gradient into the input gradient, and gives what is added to the parameters' gradients.
    fn input_grad_on_gpu(
        &self,
        gpu: &Gpu,
        grad: &mut Tensor,
        input: &Tensor,
        stats: &Tensor,
    ) -> Result<Tensor> {
        let (count, image) = images(input.shape(), Some(self.channels))?;
        let adds = Tensor::on_gpu(gpu, DType::F32, &[2, self.channels])?;
        let (of, groups) = self.images(count, image);
        let (at, weight) = (grad.at_mut(gpu)?, self.weight.weights().value());
        let partials = of.slopes(gpu, grad, input, stats)?;
        let (images, width, Groups { count, pixels }) = (of.slices(gpu), of.width, groups);
        let by = gpu.memory_of(images * count * 2 * 4)?;
        let of_images = gpu.memory_of(images * 2 * width * 4)?;
        let args = args![&of_images, &by, &partials, stats, weight, pixels, width, count];
        gpu.launch("group_slopes", Grid::row(images * count, 32), &args)?;
        gpu.sum_rows(adds.at(), of_images.at(), images, 2 * width)?;
        let (all, image) = (of.count(), pixels * width);
        let args = args![at, input, stats, &by, weight, all, image, width, count];
        gpu.launch(kernel!(grad.dtype(), "group_norm_backward"), of.eights(), &args)?;
        Ok(adds)
    }

    /// The channels of a group.
    fn width(&self) -> usize {
        self.channels / self.groups
    }

    /// Normalises one image, and writes the mean and the reciprocal deviation of each group.
    fn image(&self, out: &mut [f32], stats: &mut [f32], image: &[f32]) {
        let mut room = Buffer::pooled(2 * self.channels);
        let (mean, scale) = room.split_at_mut(self.channels);
        moments(mean, scale, image);
        let width = self.width();
        let groups = mean.chunks_exact_mut(width).zip(scale.chunks_exact_mut(width));
        let stats = stats.as_chunks_mut::<2>().0.iter_mut();
        for (((mean, scale), stats), weight) in groups.zip(stats).zip(self.weight.value.chunks_exact(width)) {
            *stats = self.of_group(mean, scale);
            mean.fill(stats[0]);
            scale.iter_mut().zip(weight).for_each(|(scale, weight)| *scale = stats[1] * weight);
        }
        apply(out, image, [mean, scale, &self.bias.value]);
    }

    /// The mean and the reciprocal deviation of a group, from the means and variances of its channels.
    fn of_group(&self, means: &[f32], variances: &[f32]) -> [f32; 2] {
        let count = means.len() as f64;
        let mean = means.iter().copied().map(f64::from).sum::<f64>() / count;
        let squares = means.iter().zip(variances).map(|(&of, &variance)| {
            let apart = f64::from(of) - mean;
            f64::from(variance) + apart * apart
        });
        let variance = squares.sum::<f64>() / count;
        [mean as f32, (1.0 / (variance + f64::from(self.epsilon)).sqrt()) as f32]
    }

    /// Turns the output gradient of one image into its input gradient, and writes the gradients of the
    /// parameters.
    fn image_grad(&self, grad: &mut [f32], adds: &mut [f32], image: &[f32], stats: &[f32]) {
        let (channels, width) = (self.channels, self.width());
        let mut room = Buffer::pooled(4 * channels);
        let (mean, rest) = room.split_at_mut(channels);
        let (scale, rest) = rest.split_at_mut(channels);
        let (slope, shift) = rest.split_at_mut(channels);
        let stats = stats.as_chunks::<2>().0;
        let groups = mean.chunks_exact_mut(width).zip(stats);
        groups.for_each(|(mean, stats)| mean.fill(stats[0]));
        let (gain, bias) = adds.split_at_mut(channels);
        slopes(bias, gain, grad, image, mean);
        let count = (image.len() / channels * width) as f64;
        for (group, &[_, deviation]) in stats.iter().enumerate() {
            let of = group * width..(group + 1) * width;
            let weights = &self.weight.value[of.clone()];
            let mean_of = |sums: &[f32]| {
                let products =
                    sums.iter().zip(weights).map(|(&sum, &weight)| f64::from(sum) * f64::from(weight));
                (products.sum::<f64>() / count) as f32
            };
            let [total, along] = [mean_of(&bias[of.clone()]), mean_of(&gain[of.clone()])];
            slope[of.clone()].fill(-deviation * deviation * deviation * along);
            shift[of.clone()].fill(-deviation * total);
            for channel in of {
                scale[channel] = deviation * self.weight.value[channel];
                gain[channel] *= deviation;
            }
        }
        input_grad(grad, image, [mean, scale, slope, shift]);
    }
}

impl Layer for GroupNorm {
    fn name(&self) -> &str {
        &self.name
    }

    fn runs_on_gpus(&self) -> bool {
        true
    }

    fn output_shape(&self, input: &Shape) -> Result<Shape> {
        images(input, Some(self.channels))?;
        Ok(*input)
    }

    fn forward(&mut self, ctx: ForwardContext, input: Tensor) -> Result<(Tensor, Kept)> {
        if let Some(gpu) = input.gpu()? {
            let [output, stats] = self.forward_on_gpu(&gpu, &input)?;
            return Ok((output, Kept::new(ctx, [input, stats])));
        }
        let (count, image) = images(input.shape(), Some(self.channels))?;
        let wide = input.clone().converted(DType::F32)?;
        let mut output = Tensor::on_host(input.dims())?;
        let mut stats = Tensor::on_host(&[count, self.groups, 2])?;
        let of_image = 2 * self.groups;
        let outs = (By(output.f32_mut(), image.count()), By(stats.f32_mut(), of_image));
        cut((outs, By(wide.f32(), image.count())), 2 * image.count(), |_, ((outs, stats), all)| {
            let outs = outs.chunks_exact_mut(image.count()).zip(stats.chunks_exact_mut(of_image));
            let pairs = outs.zip(all.chunks_exact(image.count()));
            pairs.for_each(|((out, stats), image)| self.image(out, stats, image));
        });
        Ok((output.converted(input.dtype())?, Kept::new(ctx, [input, stats])))
    }

    fn backward_input(&mut self, saved: Kept, mut grad: Tensor) -> Result<(Option<Tensor>, Kept)> {
        let (ctx, channels) = (saved.ctx, self.channels);
        let [input, stats] = saved.into_tensors();
        if let Some(gpu) = grad.gpu()? {
            let adds = self.input_grad_on_gpu(&gpu, &mut grad, &input, &stats)?;
            return Ok((Some(grad), Kept::new(ctx, (!self.is_frozen()).then_some(adds))));
        }
        let (count, image) = images(input.shape(), Some(channels))?;
        let dtype = grad.dtype();
        let (mut grad, input) = (grad.converted(DType::F32)?, input.converted(DType::F32)?);
        let mut adds = Tensor::on_host(&[count, 2, channels])?;
        let of_image = 2 * self.groups;
        let outs = (By(grad.f32_mut(), image.count()), By(adds.f32_mut(), 2 * channels));
        let kept = (By(input.f32(), image.count()), By(stats.f32(), of_image));
        cut((outs, kept), 4 * image.count(), |_, ((grads, adds), (all, stats))| {
            let outs = grads.chunks_exact_mut(image.count()).zip(adds.chunks_exact_mut(2 * channels));
            let kept = all.chunks_exact(image.count()).zip(stats.chunks_exact(of_image));
            outs.zip(kept)
                .for_each(|((grad, adds), (image, stats))| self.image_grad(grad, adds, image, stats));
        });
        Ok((Some(grad.converted(dtype)?), Kept::new(ctx, (!self.is_frozen()).then_some(adds))))
    }

    fn backward_weight(&mut self, pending: Kept) -> Result<()> {
        add_grads([Some(&mut self.weight), Some(&mut self.bias)], pending)
    }

    fn visit_parameters<'a>(&'a mut self, visit: &mut dyn FnMut(&'a mut Parameter)) {
        visit(&mut self.weight);
        visit(&mut self.bias);
    }
}
