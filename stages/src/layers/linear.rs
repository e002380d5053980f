//! The linear layer.

use super::check_rows;
use super::operands::{
    Layout, Operand, add_turned_product, adds_in_place, half_matrix, matrix, multiply_halves, multiply_next,
};
use crate::cpu::elementwise::add_rows;
use crate::cpu::matmul::Start;
use crate::cpu::real::in_format;
use crate::cuda::{self, Gpu, Product};
use crate::device::DType;
use crate::error::{Error, Result, ShapeError, check_positive};
use crate::kept::Kept;
use crate::layer::Layer;
use crate::parameter::{Init, Parameter};
use crate::shape::Shape;
use crate::stage::{ForwardContext, WRITING};
use crate::tensor::Tensor;

/// `y = x W + b` on the innermost dimension: numbers `[.., inputs]` to `[.., outputs]`.
///
/// Parameters: `{name}.weight`, `[outputs, inputs]` unless [`Linear::with_layout`] says otherwise, and
/// `{name}.bias`, `[outputs]`, unless the layer is [without](Linear::without_bias). It keeps its input.
///
/// ```
/// use pipewright_stages::layers::{Layout, Linear};
/// use pipewright_stages::{Init, Layer};
///
/// // 3 numbers in, 2 out.
/// let mut usual = Linear::new("fc", [3, 2], Init::Uniform(0.5), 1);
/// let [weight, bias] = &usual.parameters()[..] else { unreachable!() };
/// assert_eq!((weight.name(), weight.dims()), ("fc.weight", &[2, 3][..]));
/// assert_eq!((bias.name(), bias.dims()), ("fc.bias", &[2][..]));
///
/// let init = Init::Normal(0.02);
/// let mut other = Linear::new("fc", [3, 2], init, 1).with_layout(Layout::InOut).without_bias();
/// assert_eq!(other.parameters().len(), 1);
/// assert_eq!(other.parameters()[0].dims(), [3, 2]);
/// ```
#[derive(Debug)]
pub struct Linear {
    name: String,
    inputs: usize,
    outputs: usize,
    layout: Layout,
    weight: Parameter,
    bias: Option<Parameter>,
    input_gradient: bool,
    seed: u64,
    /// The weights packed for forward. Made by the first forward after the weights change.
    forward_weight: Operand,
    /// The weights packed for backward-input.
    backward_weight: Operand,
}

impl Linear {
    /// A layer whose weights start as `init` says, with random numbers from `seed`, and whose bias starts at
    /// zero. The sizes are `[inputs, outputs]`.
    pub fn new(name: &str, [inputs, outputs]: [usize; 2], init: Init, seed: u64) -> Self {
        let layer = Self {
            name: name.to_owned(),
            inputs,
            outputs,
            layout: Layout::OutIn,
            weight: Parameter::new(format!("{name}.weight"), &[outputs, inputs], init, seed).asked_by_layer(),
            bias: None,
            input_gradient: true,
            seed,
            forward_weight: Operand::default(),
            backward_weight: Operand::default(),
        };
        layer.with_bias(Init::Zeros)
    }

    /// The same layer with its weights in another layout. `init` fills the matrix in memory order, so another
    /// layout starts with another matrix.
    #[must_use]
    pub fn with_layout(mut self, layout: Layout) -> Self {
        self.layout = layout;
        let dims = match layout {
            Layout::InOut => [self.inputs, self.outputs],
            Layout::OutIn => [self.outputs, self.inputs],
        };
        self.weight.set_dims(&dims);
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
        self.bias = Some(Parameter::new(
            format!("{}.bias", self.name),
            &[self.outputs],
            init,
            self.seed,
        ));
        self
    }

    /// Replaces the layer's weight with `weight`, in the layer's layout. To share the weights of another
    /// layer, give a parameter with that weight's name and dimensions that is [`Parameter::tied`].
    ///
    /// # Errors
    /// When its dimensions are not those of the layer's weight.
    pub fn with_weight(mut self, weight: Parameter) -> Result<Self> {
        if weight.dims() != self.weight.dims() {
            let error = ShapeError::Weight {
                expected: self.weight.dims().to_vec(),
                name: weight.name().to_owned(),
                got: weight.dims().to_vec(),
            };
            return Err(Error::from(error).at(&self.name));
        }
        self.weight = weight.asked_by_layer();
        self.forget_packed();
        Ok(self)
    }

    /// Drops the packed weights: the weights may change.
    fn forget_packed(&mut self) {
        self.forward_weight = Operand::default();
        self.backward_weight = Operand::default();
    }

    /// The input gradient for this output gradient.
    pub(super) fn input_grad(&mut self, grad: &Tensor) -> Result<Tensor> {
        let mut input_grad = grad.beside(grad.shape().with_last(self.inputs).dims())?;
        if let Some(gpu) = grad.gpu()? {
            let product = Product {
                inner: self.outputs,
                columns: self.inputs,
                right_turned: self.layout == Layout::InOut,
                ..self.product(grad)
            };
            gpu.product(
                product,
                input_grad.at(),
                grad.at(),
                self.weight.weights().operand(),
                None,
            )?;
            return Ok(input_grad);
        }
        let weight = matrix(&self.weight, self.layout).t();
        self.backward_weight
            .multiply(&mut input_grad, Start::Zero, grad, weight);
        Ok(input_grad)
    }

    /// The product of a tensor's rows with the weights, on a GPU.
    fn product(&self, rows: &Tensor) -> Product {
        Product {
            rows: rows.shape().rows(),
            inner: self.inputs,
            columns: self.outputs,
            left_turned: false,
            right_turned: self.layout == Layout::OutIn,
            dtype: rows.dtype(),
            out: rows.dtype(),
            start: cuda::Start::Zero,
        }
    }

    /// [`Layer::forward`] on a GPU.
    fn forward_on(&self, gpu: &Gpu, output: &Tensor, input: &Tensor) -> Result<()> {
        let mut product = self.product(input);
        let bias = self.bias.as_ref().map(|bias| bias.weights().operand());
        if bias.is_some() {
            product.start = cuda::Start::Bias;
        }
        gpu.product(
            product,
            output.at(),
            input.at(),
            self.weight.weights().operand(),
            bias,
        )
    }

    /// [`Layer::backward_weight`] on a GPU.
    fn weight_grad_on(&self, gpu: &Gpu, input: &Tensor, grad: &Tensor, starts_sum: bool) -> Result<()> {
        let (rows, dtype) = (grad.shape().rows(), grad.dtype());
        let (sizes, left, right) = match self.layout {
            Layout::InOut => ([self.inputs, self.outputs], input, grad),
            Layout::OutIn => ([self.outputs, self.inputs], grad, input),
        };
        let product = Product {
            rows: sizes[0],
            inner: rows,
            columns: sizes[1],
            left_turned: true,
            right_turned: false,
            dtype,
            out: DType::F32,
            start: if starts_sum {
                cuda::Start::Zero
            } else {
                cuda::Start::Old
            },
        };
        gpu.product(product, self.weight.weights().grad(), left.at(), right.at(), None)?;
        match &self.bias {
            Some(bias) => {
                let scratch = gpu.memory_of(Gpu::column_sums_scratch(rows, self.outputs))?;
                let (sums, at) = (bias.weights().grad(), scratch.at());
                gpu.add_column_sums(dtype, sums, grad.at(), rows, self.outputs, at)
            }
            None => Ok(()),
        }
    }
}

impl Layer for Linear {
    fn name(&self) -> &str {
        &self.name
    }

    fn runs_on_gpus(&self) -> bool {
        true
    }

    fn output_shape(&self, input: &Shape) -> Result<Shape> {
        check_rows(input, self.inputs)?;
        check_positive(&[("outputs", self.outputs)])?;
        Ok(input.with_last(self.outputs))
    }

    fn forward(&mut self, ctx: ForwardContext, input: Tensor) -> Result<(Tensor, Kept)> {
        let shape = self.output_shape(input.shape())?;
        let mut output = input.beside(shape.dims())?;
        if let Some(gpu) = input.gpu()? {
            self.forward_on(&gpu, &output, &input)?;
            return Ok((output, Kept::new(ctx, [input])));
        }
        if let Some(weight) = half_matrix(&self.weight, self.layout) {
            multiply_halves(&mut output, start(self.bias.as_ref()), &input, weight);
            return Ok((output, Kept::new(ctx, [])));
        }
        let weight = matrix(&self.weight, self.layout);
        let start = start(self.bias.as_ref());
        self.forward_weight.multiply(&mut output, start, &input, weight);
        Ok((output, Kept::new(ctx, [input])))
    }

    fn forward_next(&mut self, _past: usize, input: Tensor) -> Result<Tensor> {
        let shape = self.output_shape(input.shape())?;
        if input.gpu()?.is_some() || input.dtype() != DType::F32 {
            return Ok(self.forward(WRITING, input)?.0);
        }
        let mut output = input.beside(shape.dims())?;
        let start = start(self.bias.as_ref());
        multiply_next(&mut output, start, &input, &self.weight, self.layout);
        Ok(output)
    }

    fn forward_again(&mut self, ctx: ForwardContext, input: Tensor) -> Result<Kept> {
        Ok(Kept::new(ctx, [input]))
    }

    fn backward_input(&mut self, saved: Kept, grad: Tensor) -> Result<(Option<Tensor>, Kept)> {
        let ctx = saved.ctx;
        let [input] = saved.into_tensors();
        let input_grad = self.input_gradient.then(|| self.input_grad(&grad)).transpose()?;
        Ok((input_grad, Kept::new(ctx, [input, grad])))
    }

    fn backward_weight(&mut self, pending: Kept) -> Result<()> {
        let [input, grad] = pending.into_tensors();
        if let Some(gpu) = grad.gpu()? {
            let starts_sum = self.weight.starts_sum(false);
            return self.weight_grad_on(&gpu, &input, &grad, starts_sum);
        }
        let start = match self.weight.starts_sum(adds_in_place(grad.shape().rows())) {
            true => Start::Zero,
            false => Start::Old,
        };
        match self.layout {
            Layout::InOut => add_turned_product(&mut self.weight.grad, start, &input, &grad),
            Layout::OutIn => add_turned_product(&mut self.weight.grad, start, &grad, &input),
        }
        if let Some(bias) = &mut self.bias {
            in_format!(grad.dtype(), N => add_rows(&mut bias.grad, grad.numbers::<N>()));
        }
        Ok(())
    }

    fn visit_parameters<'a>(&'a mut self, visit: &mut dyn FnMut(&'a mut Parameter)) {
        self.forget_packed();
        self.visit_gradients(visit);
    }

    fn visit_gradients<'a>(&'a mut self, visit: &mut dyn FnMut(&'a mut Parameter)) {
        visit(&mut self.weight);
        self.bias.iter_mut().for_each(visit);
    }

    fn drop_input_gradient(&mut self) {
        self.input_gradient = false;
    }

    fn hold_in_bf16(&mut self) {
        self.forget_packed();
        self.weight.hold_in_bf16();
    }
}

/// What the product is added to.
fn start(bias: Option<&Parameter>) -> Start<'_> {
    bias.map_or(Start::Zero, |bias| Start::Row(&bias.value))
}
