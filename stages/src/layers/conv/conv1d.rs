//! The 1-D convolution.

use crate::error::{Error, Result, check_positive};
use crate::layers::conv::cpu::window::Window;
use crate::layers::conv::unfold::{Sequence, fold, unfold};
use crate::layers::linear::Linear;
use crate::layers::linear::operands::Layout;
use crate::parameter::Parameter;
use crate::parameter::init::Init;
use crate::shape::{Kind, Shape};
use crate::stage::ForwardContext;
use crate::stage::kept::Kept;
use crate::stage::layer::Layer;
use crate::tensor::Tensor;

/// A convolution along time: numbers `[batch, time, inputs]` to `[batch, places, outputs]`, with
/// `(time + 2 padding - kernel) / stride + 1` places, rounded down.
///
/// At each place, an output is the sum over all numbers in the window, each times its weight, plus the bias.
/// Before and after a sequence are `padding` zeros. As in PyTorch, the window is not turned round.
///
/// Channels are innermost. Parameters: `{name}.weight`, `[kernel * inputs, outputs]`, and `{name}.bias`,
/// `[outputs]`, unless the layer is [without](Conv1d::without_bias). PyTorch's weight
/// `[outputs, inputs, kernel]` is `weight.reshape(kernel, inputs, outputs).permute(2, 1, 0)` of this one.
///
/// It keeps its input, unless its parameters are frozen. It runs on the CPU, in `f32`. It writes no text: a
/// window sees what comes later.
///
/// ```
/// use pipewright_stages::layers::Conv1d;
/// use pipewright_stages::{Init, Layer, Shape};
///
/// let conv = Conv1d::new("conv", [3, 16], 5, Init::Normal(0.1), 1).with_stride(2).with_padding(2);
/// let output = conv.output_shape(&Shape::f32(&[8, 100, 3]))?;
/// assert_eq!(output.dims(), [8, 50, 16]);
/// # Ok::<(), pipewright_stages::Error>(())
/// ```
#[derive(Debug)]
pub struct Conv1d {
    inputs: usize,
    window: Window,
    /// The product of windows and weights.
    product: Linear,
    input_gradient: bool,
}

impl Conv1d {
    /// A layer whose window has this length, moves by 1 and without a border. Weights start as `init` says,
    /// with random numbers from `seed`, and the bias at zero. The sizes are `[inputs, outputs]`.
    pub fn new(name: &str, [inputs, outputs]: [usize; 2], kernel: usize, init: Init, seed: u64) -> Self {
        let product = Linear::new(name, [kernel * inputs, outputs], init, seed);
        Self {
            inputs,
            window: Window { kernel, stride: 1, padding: 0 },
            product: product.with_layout(Layout::InOut),
            input_gradient: true,
        }
    }

    /// The same layer, whose window moves by `stride` steps of time.
    #[must_use]
    pub fn with_stride(mut self, stride: usize) -> Self {
        self.window.stride = stride;
        self
    }

    /// The same layer with `padding` zeros before and after a sequence.
    #[must_use]
    pub fn with_padding(mut self, padding: usize) -> Self {
        self.window.padding = padding;
        self
    }

    /// The same layer without a bias.
    #[must_use]
    pub fn without_bias(mut self) -> Self {
        self.product = self.product.without_bias();
        self
    }

    /// The same layer with a bias that starts as `init` says, with random numbers from the layer's seed.
    #[must_use]
    pub fn with_bias(mut self, init: Init) -> Self {
        self.product = self.product.with_bias(init);
        self
    }

    /// The shape of the windows of an input of this shape: `[batch, places, kernel * inputs]`.
    fn windows_of(&self, input: &Shape) -> Result<Shape> {
        let Window { kernel, stride, padding } = self.window;
        check_positive(&[("inputs", self.inputs), ("kernel", kernel), ("stride", stride)])?;
        match (input.kind(), input.dims()) {
            (Kind::F32, &[batch, time, inputs]) if inputs == self.inputs && time > 0 => {
                let places = self.window.places(time).ok_or_else(|| {
                    Error::new(format!(
                        "a window of {kernel} does not fit into sequences of {time} with a border of \
                         {padding}: choose a smaller kernel, more padding or longer sequences"
                    ))
                })?;
                Ok(Shape::f32(&[batch, places, kernel * inputs]))
            }
            _ => Err(Error::shape(format!("f32[batch, time, {}]", self.inputs), input)),
        }
    }

    /// The windows of an input.
    fn windows(&self, input: &Tensor) -> Result<Tensor> {
        let mut windows = Tensor::on_host(self.windows_of(input.shape())?.dims())?;
        unfold(windows.f32_mut(), input.f32(), sequence(input.shape()), self.window);
        Ok(windows)
    }

    /// What forward keeps: the input, or its size alone.
    fn kept(&self, ctx: ForwardContext, input: Tensor) -> Kept {
        Kept::new(ctx, [if self.product.is_trained() { input } else { input.without_rows() }])
    }

    /// The gradient of an input of this shape.
    fn input_grad(&mut self, ctx: ForwardContext, shape: &Shape, grad: &Tensor) -> Result<Tensor> {
        let windows = self.product.input_grad(ctx, grad)?;
        let mut input_grad = Tensor::on_host(shape.dims())?;
        fold(input_grad.f32_mut(), windows.f32(), sequence(shape), self.window);
        Ok(input_grad)
    }
}

fn sequence(shape: &Shape) -> Sequence {
    let [_, time, channels] = *shape.dims() else {
        unreachable!("checked: three dimensions");
    };
    Sequence { time, channels }
}

impl Layer for Conv1d {
    fn name(&self) -> &str {
        self.product.name()
    }

    fn output_shape(&self, input: &Shape) -> Result<Shape> {
        self.product.output_shape(&self.windows_of(input)?)
    }

    fn forward(&mut self, ctx: ForwardContext, input: Tensor) -> Result<(Tensor, Kept)> {
        let windows = self.windows(&input)?;
        let (output, _) = self.product.forward(ctx, windows)?;
        Ok((output, self.kept(ctx, input)))
    }

    fn forward_again(&mut self, ctx: ForwardContext, input: Tensor) -> Result<Kept> {
        Ok(self.kept(ctx, input))
    }

    fn forward_next(&mut self, _past: usize, _input: Tensor) -> Result<Tensor> {
        Err(Error::new("a convolution writes no text: its windows see tokens that come later"))
    }

    fn backward_input(&mut self, saved: Kept, grad: Tensor) -> Result<(Option<Tensor>, Kept)> {
        let ctx = saved.ctx;
        let [input] = saved.into_tensors();
        let shape = input.shape().with_first(grad.dims()[0]);
        let input_grad = match self.input_gradient {
            true => Some(self.input_grad(ctx, &shape, &grad)?),
            false => None,
        };
        let pending = match self.product.is_trained() {
            true => Kept::new(ctx, [input, grad]),
            false => Kept::new(ctx, []),
        };
        Ok((input_grad, pending))
    }

    fn backward_weight(&mut self, pending: Kept) -> Result<()> {
        if !self.product.is_trained() {
            return Ok(());
        }
        let ctx = pending.ctx;
        let [input, grad] = pending.into_tensors();
        let windows = self.windows(&input)?;
        self.product.backward_weight(Kept::new(ctx, [windows, grad]))
    }

    fn visit_parameters<'a>(&'a mut self, visit: &mut dyn FnMut(&'a mut Parameter)) {
        self.product.visit_parameters(visit);
    }

    fn visit_gradients<'a>(&'a mut self, visit: &mut dyn FnMut(&'a mut Parameter)) {
        self.product.visit_gradients(visit);
    }

    fn drop_input_gradient(&mut self) {
        self.input_gradient = false;
    }
}
