//! The sum of two branches.

use crate::cpu::elementwise;
use crate::error::{Result, ShapeError};
use crate::kept::Kept;
use crate::layer::Layer;
use crate::parameter::Parameter;
use crate::sequential;
use crate::shape::Shape;
use crate::stage::{ForwardContext, Mode};
use crate::tensor::Tensor;

/// `f(x) + g(x)`, where `f` and `g` are chains of layers on the CPU. It keeps what both keep, or only its
/// input if it recomputes its interior.
#[derive(Debug)]
pub(super) struct Branches {
    name: String,
    chains: [Vec<Box<dyn Layer>>; 2],
    recompute: bool,
}

impl Branches {
    pub(super) fn new(name: &str, chains: [Vec<Box<dyn Layer>>; 2]) -> Self {
        Self {
            name: name.to_owned(),
            chains,
            recompute: false,
        }
    }

    fn again(&mut self, ctx: ForwardContext, input: &Tensor) -> Result<Kept> {
        let [first, second] = &mut self.chains;
        let first = sequential::forward_again((first, None), ctx, input.clone())?;
        let second = sequential::forward_again((second, None), ctx, input.clone())?;
        Ok(Kept::nested(ctx, [first, second]))
    }
}

impl Layer for Branches {
    fn name(&self) -> &str {
        &self.name
    }

    fn output_shape(&self, input: &Shape) -> Result<Shape> {
        let [first, second] = &self.chains;
        let (output, other) = (
            sequential::output_shape(first, input)?,
            sequential::output_shape(second, input)?,
        );
        if output == other {
            return Ok(output);
        }
        Err(ShapeError::Residual { input: other, output }.into())
    }

    fn forward(&mut self, ctx: ForwardContext, input: Tensor) -> Result<(Tensor, Kept)> {
        let [first, second] = &mut self.chains;
        let (mut output, kept) = sequential::forward((first, None), ctx, input.clone())?;
        let (other, other_kept) = sequential::forward((second, None), ctx, input.clone())?;
        elementwise::add(output.f32_mut(), other.f32());
        if self.recompute && ctx.mode == Mode::Train {
            return Ok((output, Kept::new(ctx, [input])));
        }
        Ok((output, Kept::nested(ctx, [kept, other_kept])))
    }

    fn forward_again(&mut self, ctx: ForwardContext, input: Tensor) -> Result<Kept> {
        match self.recompute {
            true => Ok(Kept::new(ctx, [input])),
            false => self.again(ctx, &input),
        }
    }

    fn backward_input(&mut self, saved: Kept, grad: Tensor) -> Result<(Option<Tensor>, Kept)> {
        let ctx = saved.ctx;
        let saved = match self.recompute {
            true => {
                let [input] = saved.into_tensors();
                self.again(ctx, &input)?
            }
            false => saved,
        };
        let [saved, other_saved] = saved.into_inner();
        let [first, second] = &mut self.chains;
        let (input_grad, pending) = sequential::backward_input((first, None), saved, grad.clone())?;
        let (other_grad, other_pending) = sequential::backward_input((second, None), other_saved, grad)?;
        let input_grad = match (input_grad, other_grad) {
            (Some(mut sum), Some(other)) => {
                elementwise::add(sum.f32_mut(), other.f32());
                Some(sum)
            }
            (one, other) => one.or(other),
        };
        Ok((input_grad, Kept::nested(ctx, [pending, other_pending])))
    }

    fn backward_weight(&mut self, pending: Kept) -> Result<()> {
        let [pending, other_pending] = pending.into_inner();
        let [first, second] = &mut self.chains;
        sequential::backward_weight((first, None), pending)?;
        sequential::backward_weight((second, None), other_pending)
    }

    fn visit_parameters<'a>(&'a mut self, visit: &mut dyn FnMut(&'a mut Parameter)) {
        for chain in &mut self.chains {
            sequential::visit_parameters(chain, visit);
        }
    }

    fn visit_gradients<'a>(&'a mut self, visit: &mut dyn FnMut(&'a mut Parameter)) {
        for chain in &mut self.chains {
            sequential::visit_gradients(chain, visit);
        }
    }

    fn recompute_interior(&mut self) {
        self.recompute = true;
    }
}
