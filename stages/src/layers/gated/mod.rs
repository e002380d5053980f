//! Gated activations, such as SwiGLU.

pub(crate) mod cpu;

use super::Cheap;
use crate::cpu::real::in_format;
use crate::cuda::launch::{args, kernel};
use crate::cuda::{Gpu, Grid, Ptr};
use crate::device::DType;
use crate::error::{Error, Result, check_numbers};
use crate::layers::gated::cpu as gated;
use crate::layers::gated::cpu::GateForm;
use crate::layers::norm::cuda::Rows;
use crate::shape::Shape;
use crate::stage::ForwardContext;
use crate::stage::kept::Kept;
use crate::stage::layer::Layer;
use crate::tensor::Tensor;

/// An activation that is a gate: `f32[.., 2 width]` to `f32[.., width]`. The first half of the innermost
/// dimension goes through the activation, and multiplies the second half: `y = act(a) b` for an input `[a,
/// b]`. Shazeer, "GLU variants improve transformer" (2020). It keeps its input.
#[derive(Debug)]
pub struct Gated {
    name: String,
    form: GateForm,
}

impl Gated {
    /// A layer of this name and form.
    pub fn new(name: &str, form: GateForm) -> Self {
        Self { name: name.to_owned(), form }
    }
}

/// The rows of the output.
fn rows(output: &Shape) -> Rows {
    Rows { count: output.rows(), width: output.last() }
}

impl Layer for Gated {
    fn name(&self) -> &str {
        &self.name
    }

    fn runs_on_gpus(&self) -> bool {
        true
    }

    fn output_shape(&self, input: &Shape) -> Result<Shape> {
        check_numbers(input)?;
        let last = input.last();
        if input.dims().is_empty() || last == 0 || !last.is_multiple_of(2) {
            return Err(Error::shape("f32[.., an even number]", input));
        }
        Ok(input.with_last(last / 2))
    }

    fn forward(&mut self, ctx: ForwardContext, input: Tensor) -> Result<(Tensor, Kept)> {
        let shape = self.output_shape(input.shape())?;
        let mut output = input.beside(shape.dims())?;
        match input.gpu()? {
            Some(gpu) => {
                gpu.gated((Pass::Forward, self.form, input.dtype()), output.at(), input.at(), rows(&shape))?
            }
            None => in_format!(input.dtype(), N => {
                gated::forward::<N>(self.form, output.numbers_mut(), input.numbers(), shape.last());
            }),
        }
        Ok((output, Kept::new(ctx, [input])))
    }

    fn forward_again(&mut self, ctx: ForwardContext, input: Tensor) -> Result<Kept> {
        Ok(Kept::new(ctx, [input]))
    }

    fn backward_input(&mut self, saved: Kept, grad: Tensor) -> Result<(Option<Tensor>, Kept)> {
        let ctx = saved.ctx;
        let [mut input] = saved.into_tensors();
        match grad.gpu()? {
            Some(gpu) => {
                let (dtype, rows) = (grad.dtype(), rows(grad.shape()));
                gpu.gated((Pass::Backward, self.form, dtype), grad.at(), input.at_mut(&gpu)?, rows)?;
            }
            None => in_format!(grad.dtype(), N => {
                gated::backward::<N>(self.form, grad.numbers(), input.numbers_mut(), grad.shape().last());
            }),
        }
        Ok((Some(input), Kept::new(ctx, [])))
    }
}

impl Cheap for Gated {
    fn backward_with_output(&mut self, saved: Kept, mut grad: Tensor) -> Result<(Tensor, Kept, Tensor)> {
        let ctx = saved.ctx;
        let [mut input] = saved.into_tensors();
        let width = grad.shape().last();
        match grad.gpu()? {
            Some(gpu) => {
                let (dtype, rows) = (grad.dtype(), rows(grad.shape()));
                let at = (grad.at_mut(&gpu)?, input.at_mut(&gpu)?);
                gpu.gated((Pass::BackwardAndForward, self.form, dtype), at.0, at.1, rows)?;
            }
            None => in_format!(grad.dtype(), N => {
                gated::backward_and_forward::<N>(self.form, grad.numbers_mut(), input.numbers_mut(), width);
            }),
        }
        Ok((input, Kept::new(ctx, []), grad))
    }
}

/// The threads of a block.
const THREADS: u32 = 256;

/// What a kernel does, as the functions of the same names in [`crate::layers::gated::cpu`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pass {
    Forward,
    Backward,
    BackwardAndForward,
}

impl Gpu {
    /// Works on `rows` of `single` numbers, the output or its gradient, and the input, whose rows have twice
    /// that width.
    pub(crate) fn gated(
        &self,
        (pass, form, dtype): (Pass, GateForm, DType),
        single: Ptr,
        double: Ptr,
        rows: Rows,
    ) -> Result<()> {
        let name = match (pass, form) {
            (Pass::Forward, GateForm::Silu) => kernel!(dtype, "gated_silu_forward"),
            (Pass::Forward, GateForm::GeluTanh) => kernel!(dtype, "gated_gelu_tanh_forward"),
            (Pass::Forward, GateForm::Gelu) => kernel!(dtype, "gated_gelu_forward"),
            (Pass::Backward, GateForm::Silu) => kernel!(dtype, "gated_silu_backward"),
            (Pass::Backward, GateForm::GeluTanh) => kernel!(dtype, "gated_gelu_tanh_backward"),
            (Pass::Backward, GateForm::Gelu) => kernel!(dtype, "gated_gelu_backward"),
            (Pass::BackwardAndForward, GateForm::Silu) => kernel!(dtype, "gated_silu_backward_and_forward"),
            (Pass::BackwardAndForward, GateForm::GeluTanh) => {
                kernel!(dtype, "gated_gelu_tanh_backward_and_forward")
            }
            (Pass::BackwardAndForward, GateForm::Gelu) => kernel!(dtype, "gated_gelu_backward_and_forward"),
        };
        let args = args![single, double, rows.count, rows.width];
        let grid = Grid::each(rows.count * rows.width.div_ceil(8), THREADS);
        self.launch(name, grid, &args)
    }
}
