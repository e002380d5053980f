//! A linear layer for candle's models whose weight gradient can wait.

use std::cell::RefCell;

use candle_core::backend::BackendStorage;
use candle_core::{CpuStorage, CustomOp2, Layout, Module, Result, Shape, Tensor, TensorId};
use candle_nn::VarBuilder;
use candle_nn::init::{DEFAULT_KAIMING_NORMAL, Init};

/// `y = x W^T + b` on the innermost dimension, with the weights and the bits of [`candle_nn::Linear`].
///
/// In a [`CandleLayer`](crate::CandleLayer), the gradient of its matrix is not computed in backward-input. It
/// waits for backward-weight, which needs the input and the output gradient. So schedules that split backward
/// gain from it. Anywhere else it has the gradients of candle's tape.
#[derive(Clone, Debug)]
pub struct SplitLinear {
    weight: Tensor,
    bias: Option<Tensor>,
}

/// A [`SplitLinear`] with the weights `weight`, `[outputs, inputs]`, and `bias`, `[outputs]`, that start as
/// in [`candle_nn::linear()`].
///
/// # Errors
/// When the builder does not give them.
pub fn split_linear(inputs: usize, outputs: usize, weights: VarBuilder<'_>) -> Result<SplitLinear> {
    let bound = 1.0 / (inputs as f64).sqrt();
    let init = Init::Uniform { lo: -bound, up: bound };
    let bias = Some(weights.get_with_hints(outputs, "bias", init)?);
    let linear = split_linear_no_bias(inputs, outputs, weights)?;
    Ok(SplitLinear { bias, ..linear })
}

/// Like [`split_linear`], without a bias.
///
/// # Errors
/// When the builder does not give the weights.
pub fn split_linear_no_bias(inputs: usize, outputs: usize, weights: VarBuilder<'_>) -> Result<SplitLinear> {
    let weight = weights.get_with_hints((outputs, inputs), "weight", DEFAULT_KAIMING_NORMAL)?;
    Ok(SplitLinear { weight, bias: None })
}

impl Module for SplitLinear {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let (outputs, inputs) = self.weight.dims2()?;
        let mut dims = x.dims().to_vec();
        if dims.pop() != Some(inputs) {
            candle_core::bail!("expected {inputs} numbers in each row, got {:?}", x.dims())
        }
        dims.push(outputs);
        let rows = x.reshape(((), inputs))?.contiguous()?;
        let y = rows.apply_op2(&self.weight, Product)?.reshape(dims)?;
        match &self.bias {
            Some(bias) => y.broadcast_add(bias),
            None => Ok(y),
        }
    }
}

/// A weight gradient that waits: the product of the input's transpose and the output gradient, transposed.
pub(crate) struct Waiting {
    pub(crate) weight: TensorId,
    input: Tensor,
    grad: Tensor,
}

impl Waiting {
    pub(crate) fn compute(&self) -> Result<Tensor> {
        weight_grad(&self.input, &self.grad)
    }

    pub(crate) fn bytes(&self) -> u64 {
        4 * (self.input.elem_count() + self.grad.elem_count()) as u64
    }
}

fn weight_grad(input: &Tensor, grad: &Tensor) -> Result<Tensor> {
    input.t()?.matmul(grad)?.t()
}

thread_local! {
    /// Where weight gradients wait while a layer runs backward-input on this thread.
    static COLLECTED: RefCell<Option<Vec<Waiting>>> = const { RefCell::new(None) };
}

/// Runs `backward`, and gives the weight gradients that it left out, in its order.
pub(crate) fn collecting<T>(backward: impl FnOnce() -> T) -> (T, Vec<Waiting>) {
    COLLECTED.set(Some(Vec::new()));
    let result = backward();
    (result, COLLECTED.take().unwrap_or_default())
}

/// Keeps a weight gradient for later. Without a layer that collects them, gives it at once.
fn later(weight: &Tensor, input: &Tensor, grad: &Tensor) -> Result<Option<Tensor>> {
    COLLECTED.with_borrow_mut(|collected| match collected {
        // The tape needs a gradient for what is computed of variables.
        Some(waiting) if weight.is_variable() => {
            waiting.push(Waiting { weight: weight.id(), input: input.detach(), grad: grad.clone() });
            Ok(None)
        }
        _ => weight_grad(input, grad).map(Some),
    })
}

/// `x W^T` for `x[rows, inputs]` and `W[outputs, inputs]`.
struct Product;

impl CustomOp2 for Product {
    fn name(&self) -> &'static str {
        "split-linear"
    }

    fn cpu_fwd(
        &self,
        x: &CpuStorage,
        x_at: &Layout,
        weight: &CpuStorage,
        weight_at: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let (rows, inputs) = x_at.shape().dims2()?;
        let (outputs, _) = weight_at.shape().dims2()?;
        let transposed = weight_at.transpose(0, 1)?;
        let product = x.matmul(weight, (1, rows, outputs, inputs), x_at, &transposed)?;
        Ok((product, Shape::from((rows, outputs))))
    }

    fn bwd(
        &self,
        x: &Tensor,
        weight: &Tensor,
        _: &Tensor,
        grad: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let of_x = if x.track_op() { Some(grad.matmul(weight)?) } else { None };
        Ok((of_x, later(weight, x, grad)?))
    }
}
