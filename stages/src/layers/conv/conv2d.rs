//! The convolution.

use half::bf16;

use super::images::windows;
use crate::cpu::real::convert;
use crate::device::DType;
use crate::error::{Result, check_positive};
use crate::layers::conv::cpu as conv;
use crate::layers::conv::cpu::filters::Filters;
use crate::layers::conv::cpu::window::{Window, Windows};
use crate::layers::linear::bias::add_bias_grad;
use crate::parameter::Parameter;
use crate::parameter::init::Init;
use crate::pool::Buffer;
use crate::shape::Shape;
use crate::stage::ForwardContext;
use crate::stage::kept::Kept;
use crate::stage::layer::Layer;
use crate::tensor::Tensor;

/// A 2-D convolution: numbers `[batch, height, width, inputs]` to `[batch, places, places, outputs]`, where a
/// side has `(side + 2 padding - kernel) / stride + 1` places, rounded down.
///
/// At each place of a square window, an output is the sum over all numbers in the window, each times its
/// weight, plus the bias. Around an image are `padding` zeros. As in PyTorch, the window is not turned round.
///
/// Channels are innermost, as in PyTorch's `channels_last`: so the rows of a window are contiguous, and norms
/// and biases work on rows. Parameters: `{name}.weight`, `[inputs, kernel, kernel, outputs]`, and
/// `{name}.bias`, `[outputs]`, unless the layer is [without](Conv2d::without_bias). PyTorch's weight
/// `[outputs, inputs, kernel, kernel]` is `weight.permute(3, 0, 1, 2)` of this one.
///
/// It keeps its input, unless its parameters are frozen. On a GPU, windows are copied into rows, at most 64
/// MiB of them at a time (or the windows of one image, if they are more), and products do the rest. In `bf16`
/// on the CPU, images and weights are rounded to `bf16`, and the work is the same as in `f32`.
///
/// ```
/// use pipewright_stages::layers::Conv2d;
/// use pipewright_stages::{Init, Layer, Shape};
///
/// let init = Init::Normal(0.1);
/// let conv = Conv2d::new("conv1", [3, 16], 3, init, 1).with_stride(2).with_padding(1);
/// let output = conv.output_shape(&Shape::f32(&[8, 32, 32, 3]))?;
/// assert_eq!(output.dims(), [8, 16, 16, 16]);
/// # Ok::<(), pipewright_stages::Error>(())
/// ```
#[derive(Debug)]
pub struct Conv2d {
    name: String,
    sizes: [usize; 2],
    window: Window,
    weight: Parameter,
    bias: Option<Parameter>,
    input_gradient: bool,
    seed: u64,
    /// The weights packed for forward. Made by the first forward after the weights change.
    forward: Option<Filters>,
    /// The weights packed for backward-input.
    backward: Option<Filters>,
}

impl Conv2d {
    /// A layer with a square window of this side, which moves by 1 and without a border. Weights start as
    /// `init` says, with random numbers from `seed`, and the bias at zero. The sizes are `[inputs, outputs]`.
    pub fn new(name: &str, [inputs, outputs]: [usize; 2], kernel: usize, init: Init, seed: u64) -> Self {
        let dims = [inputs, kernel, kernel, outputs];
        let weight = Parameter::new(format!("{name}.weight"), &dims, init, seed);
        let layer = Self {
            name: name.to_owned(),
            sizes: [inputs, outputs],
            window: Window { kernel, stride: 1, padding: 0 },
            weight: weight.asked_by_layer(),
            bias: None,
            input_gradient: true,
            seed,
            forward: None,
            backward: None,
        };
        layer.with_bias(Init::Zeros)
    }

    /// The same layer, whose window moves by `stride` pixels.
    #[must_use]
    pub fn with_stride(mut self, stride: usize) -> Self {
        self.window.stride = stride;
        self
    }

    /// The same layer with `padding` zeros on each side of an image.
    #[must_use]
    pub fn with_padding(mut self, padding: usize) -> Self {
        self.window.padding = padding;
        self
    }

    /// The same layer without a bias.
    #[must_use]
    pub fn without_bias(mut self) -> Self {
        self.bias = None;
        self
    }

    /// The same layer with a bias that starts as `init` says, with random numbers from the layer's seed.
    #[must_use]
    pub fn with_bias(mut self, init: Init) -> Self {
        let name = format!("{}.bias", self.name);
        self.bias = Some(Parameter::new(name, &[self.sizes[1]], init, self.seed));
        self
    }

    fn is_trained(&self) -> bool {
        let bias = self.bias.as_ref().is_some_and(|bias| !bias.is_frozen());
        bias || !self.weight.is_frozen()
    }

    /// What forward keeps: the input, or its size alone.
    fn kept(&self, ctx: ForwardContext, input: Tensor) -> Kept {
        Kept::new(ctx, [if self.is_trained() { input } else { input.without_rows() }])
    }

    fn windows_of(&self, input: &Shape) -> Result<Windows> {
        windows(input, Some(self.sizes[0]), self.window, |_| self.sizes[1])
    }

    /// The gradient of images of this shape.
    fn input_grad(&mut self, shape: &Shape, grad: &Tensor) -> Result<Tensor> {
        let of = self.windows_of(shape)?;
        if let Some(gpu) = grad.gpu()? {
            return of.backward(&gpu, grad, self.weight.weights().numbers());
        }
        let mut input_grad = Tensor::on_host(shape.dims())?;
        let pack = || in_dtype(grad.dtype(), &self.weight, |w| Filters::backward(w, self.sizes, self.window));
        let filters = self.backward.get_or_insert_with(pack);
        let wide = grad.clone().converted(DType::F32)?;
        conv::backward(input_grad.f32_mut(), wide.f32(), of.image, filters);
        input_grad.converted(grad.dtype())
    }

    fn add_weight_grad(&mut self, input: &Tensor, grad: &Tensor) -> Result<()> {
        if self.weight.is_frozen() {
            return Ok(());
        }
        let of = self.windows_of(input.shape())?;
        if let Some(gpu) = grad.gpu()? {
            let starts_sum = self.weight.starts_sum(false);
            return of.add_weight_grad(&gpu, self.weight.weights().grad()?, starts_sum, [input, grad]);
        }
        let starts_sum = self.weight.starts_sum(conv::is_added_up_first(of.count, of.seen));
        let [input, grad] = [input, grad].map(|tensor| tensor.clone().converted(DType::F32));
        let (input, grad) = (input?, grad?);
        let (numbers, outputs) = ([input.f32(), grad.f32()], self.sizes[1]);
        conv::add_weight_grad(&mut self.weight.grad, starts_sum, numbers, of.image, outputs, self.window);
        Ok(())
    }
}

/// Calls `pack` with the weights, rounded to this format.
fn in_dtype<T>(dtype: DType, weight: &Parameter, pack: impl FnOnce(&[f32]) -> T) -> T {
    if dtype == DType::F32 {
        return pack(&weight.value);
    }
    let mut rounded = Buffer::<bf16>::pooled(weight.value.len());
    convert(&mut rounded, &weight.value[..]);
    let mut wide = Buffer::pooled(rounded.len());
    convert(&mut wide, &rounded[..]);
    pack(&wide)
}

impl Layer for Conv2d {
    fn name(&self) -> &str {
        &self.name
    }

    fn runs_on_gpus(&self) -> bool {
        true
    }

    fn output_shape(&self, input: &Shape) -> Result<Shape> {
        let of = self.windows_of(input)?;
        check_positive(&[("outputs", self.sizes[1])])?;
        Ok(of.output_shape())
    }

    fn forward(&mut self, ctx: ForwardContext, input: Tensor) -> Result<(Tensor, Kept)> {
        let of = self.windows_of(input.shape())?;
        if let Some(gpu) = input.gpu()? {
            let bias = self.bias.as_ref().map(|bias| bias.weights().numbers());
            let output = of.forward(&gpu, &input, self.weight.weights().numbers(), bias)?;
            return Ok((output, self.kept(ctx, input)));
        }
        let mut output = Tensor::on_host(of.output_shape().dims())?;
        let pack = || in_dtype(input.dtype(), &self.weight, |w| Filters::forward(w, self.sizes, self.window));
        let filters = self.forward.get_or_insert_with(pack);
        let bias = self.bias.as_ref().map(|bias| &bias.value[..]);
        let wide = input.clone().converted(DType::F32)?;
        conv::forward(output.f32_mut(), bias, wide.f32(), of.image, filters);
        Ok((output.converted(input.dtype())?, self.kept(ctx, input)))
    }

    fn forward_again(&mut self, ctx: ForwardContext, input: Tensor) -> Result<Kept> {
        Ok(self.kept(ctx, input))
    }

    fn backward_input(&mut self, saved: Kept, grad: Tensor) -> Result<(Option<Tensor>, Kept)> {
        let ctx = saved.ctx;
        let [input] = saved.into_tensors();
        let input_grad = match self.input_gradient {
            true => {
                let shape = input.shape().with_first(grad.dims()[0]);
                Some(self.input_grad(&shape, &grad)?)
            }
            false => None,
        };
        let pending = match self.is_trained() {
            true => Kept::new(ctx, [input, grad]),
            false => Kept::new(ctx, []),
        };
        Ok((input_grad, pending))
    }

    fn backward_weight(&mut self, pending: Kept) -> Result<()> {
        if !self.is_trained() {
            return Ok(());
        }
        let [input, grad] = pending.into_tensors();
        self.add_weight_grad(&input, &grad)?;
        match self.bias.as_mut().filter(|bias| !bias.is_frozen()) {
            Some(bias) => add_bias_grad(bias, &grad, None),
            None => Ok(()),
        }
    }

    fn visit_parameters<'a>(&'a mut self, visit: &mut dyn FnMut(&'a mut Parameter)) {
        (self.forward, self.backward) = (None, None);
        self.visit_gradients(visit);
    }

    fn visit_gradients<'a>(&'a mut self, visit: &mut dyn FnMut(&'a mut Parameter)) {
        visit(&mut self.weight);
        self.bias.iter_mut().for_each(visit);
    }

    fn drop_input_gradient(&mut self) {
        self.input_gradient = false;
    }
}
