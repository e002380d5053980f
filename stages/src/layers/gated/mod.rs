//! Gated activations, such as SwiGLU.

pub(crate) mod cpu;

use super::Cheap;
use crate::cpu::real::in_format;
use crate::cuda::launch::{args, kernel};
use crate::cuda::{Gpu, Grid, Ptr};
use crate::error::{Error, Result, check_numbers};
use crate::layers::gated::cpu as gated;
use crate::layers::gated::cpu::GateForm;
use crate::shape::Shape;
use crate::shards::Team;
use crate::stage::ForwardContext;
use crate::stage::borders::Borders;
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

    /// It treats each row alone.
    fn join(&mut self, _team: &Team) -> Result<()> {
        Ok(())
    }

    /// It treats each row alone.
    fn keep_apart(&mut self, _borders: &Borders) -> Result<()> {
        Ok(())
    }

    fn forward(&mut self, ctx: ForwardContext, input: Tensor) -> Result<(Tensor, Kept)> {
        let shape = self.output_shape(input.shape())?;
        let mut output = input.beside(shape.dims())?;
        forward(self.form, &mut output, &input)?;
        Ok((output, Kept::new(ctx, [input])))
    }

    fn forward_again(&mut self, ctx: ForwardContext, input: Tensor) -> Result<Kept> {
        Ok(Kept::new(ctx, [input]))
    }

    fn backward_input(&mut self, saved: Kept, grad: Tensor) -> Result<(Option<Tensor>, Kept)> {
        let ctx = saved.ctx;
        let [mut input] = saved.into_tensors();
        backward(self.form, &grad, &mut input)?;
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
                let at = [grad.at_mut(&gpu)?, input.at_mut(&gpu)?];
                launch(&gpu, (Pass::BackwardAndForward, self.form), at, &grad)?;
            }
            None => in_format!(grad.dtype(), N => {
                gated::backward_and_forward::<N>(self.form, grad.numbers_mut(), input.numbers_mut(), width);
            }),
        }
        Ok((input, Kept::new(ctx, []), grad))
    }
}

/// What a kernel does, as the functions of the same names in [`crate::layers::gated::cpu`].
#[derive(Clone, Copy, Debug)]
enum Pass {
    Forward,
    Backward,
    BackwardAndForward,
}

/// Writes the output for an input, whose rows have twice its width.
pub(crate) fn forward(form: GateForm, output: &mut Tensor, input: &Tensor) -> Result<()> {
    if let Some(gpu) = input.gpu()? {
        return launch(&gpu, (Pass::Forward, form), [output.at(), input.at()], output);
    }
    let width = output.shape().last();
    in_format!(input.dtype(), N => {
        gated::forward::<N>(form, output.numbers_mut(), input.numbers(), width);
    });
    Ok(())
}

/// Turns the input into its gradient, with the output gradient.
pub(crate) fn backward(form: GateForm, grad: &Tensor, input: &mut Tensor) -> Result<()> {
    if let Some(gpu) = grad.gpu()? {
        return launch(&gpu, (Pass::Backward, form), [grad.at(), input.at_mut(&gpu)?], grad);
    }
    in_format!(grad.dtype(), N => {
        gated::backward::<N>(form, grad.numbers(), input.numbers_mut(), grad.shape().last());
    });
    Ok(())
}

/// Works on numbers like the output, and on numbers like the input.
fn launch(gpu: &Gpu, (pass, form): (Pass, GateForm), at: [Ptr; 2], output: &Tensor) -> Result<()> {
    let dtype = output.dtype();
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
    let (rows, width) = (output.shape().rows(), output.shape().last());
    gpu.launch(name, Grid::of_rows(rows, width), &args![at[0], at[1], width])
}
