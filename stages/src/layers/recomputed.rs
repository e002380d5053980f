//! A cheap layer before a linear one. Its output is computed again in backward, or kept.

use super::Linear;
use super::linear::Between;
use crate::error::{Error, Result};
use crate::loss::MicroBatchLoss;
use crate::parameter::Parameter;
use crate::shape::Shape;
use crate::shards::{Division, Team};
use crate::stage::borders::Borders;
use crate::stage::kept::Kept;
use crate::stage::layer::{ChooseLora, Layer, input_grad_onto};
use crate::stage::recompute::Recompute;
use crate::stage::{ForwardContext, Mode};
use crate::tensor::Tensor;

/// A layer whose output is cheaper to compute again than to keep.
pub trait Cheap: Layer {
    /// Like [`Layer::backward_input`], and also computes the layer's output again. Gives the input gradient,
    /// what backward-weight needs, and the output.
    ///
    /// # Errors
    /// Whatever stops the layer.
    fn backward_with_output(&mut self, saved: Kept, grad: Tensor) -> Result<(Tensor, Kept, Tensor)>;

    /// Like [`Cheap::backward_with_output`], with `onto` added to the input gradient: see
    /// [`Layer::backward_input_onto`].
    ///
    /// # Errors
    /// Whatever stops the layer.
    fn backward_with_output_onto(
        &mut self,
        saved: Kept,
        grad: Tensor,
        onto: Tensor,
    ) -> Result<(Tensor, Kept, Tensor)> {
        let (input_grad, pending, output) = self.backward_with_output(saved, grad)?;
        Ok((input_grad_onto(Some(input_grad), onto)?, pending, output))
    }
}

/// A cheap layer and the linear layer after it. It keeps what the cheap layer keeps, but not the input of the
/// linear layer: backward-input computes that again for backward-weight. With [`Recompute::None`] it keeps
/// the input too. The results have the same bits as if the two layers ran one after the other.
#[derive(Debug)]
pub struct Recomputed<C> {
    cheap: C,
    linear: Linear,
    how: Recompute,
}

impl<C: Cheap> Recomputed<C> {
    /// The two layers, under the linear layer's name.
    pub fn new(cheap: C, linear: Linear) -> Self {
        Self { cheap, linear, how: Recompute::default() }
    }

    /// Whether the input of the linear layer is kept for its backward-weight.
    fn keeps_inner(&self, ctx: ForwardContext) -> bool {
        let is_used = self.linear.is_trained() && !self.linear.is_deferred();
        self.how == Recompute::None && ctx.mode == Mode::Train && is_used
    }

    /// Whether anything of the linear layer is kept: its input, or what is between the matrices of adapters.
    fn keeps_linear(&self, ctx: ForwardContext) -> bool {
        self.keeps_inner(ctx) || self.linear.keeps_between()
    }

    /// What both layers keep.
    fn kept(&self, ctx: ForwardContext, cheap: Kept, mut linear: Kept) -> Kept {
        if !self.keeps_inner(ctx) {
            drop(linear.take_tensors());
        }
        match self.keeps_linear(ctx) {
            true => Kept::nested(ctx, [cheap, linear]),
            false => cheap,
        }
    }

    /// Backward-input of both layers, with `onto` added to the input gradient, if it is given.
    fn backward(
        &mut self,
        saved: Kept,
        grad: Tensor,
        onto: Option<Tensor>,
    ) -> Result<(Option<Tensor>, Kept)> {
        let ctx = saved.ctx;
        let grad = self.linear.whole_grad(grad)?;
        let (inner_grad, inner_grads) = self.linear.input_grads(ctx, &grad, true)?;
        let inner_grad = inner_grad.expect("it is used");
        if !self.linear.is_trained() {
            let (input_grad, pending) = self.backward_cheap(saved, inner_grad, onto)?;
            return Ok((input_grad, Kept::nested(ctx, [pending])));
        }
        let (cheap, (inner, inners)) = match self.keeps_linear(ctx) {
            true => {
                let [cheap, linear] = saved.into_inner();
                (cheap, Linear::take_kept(linear))
            }
            false => (saved, (None, Between::new())),
        };
        let (input_grad, pending, inner) = match (inner, onto) {
            (Some(inner), onto) => {
                let (input_grad, pending) = self.backward_cheap(cheap, inner_grad, onto)?;
                let missing = "its `backward_input` gives no input gradient, which a `Cheap` layer must";
                let input_grad = input_grad.ok_or_else(|| Error::new(missing).at(self.cheap.name()))?;
                (input_grad, pending, inner)
            }
            (None, Some(onto)) => self.cheap.backward_with_output_onto(cheap, inner_grad, onto)?,
            (None, None) => self.cheap.backward_with_output(cheap, inner_grad)?,
        };
        let linear = self.linear.pending(ctx, inner, grad, [inners, inner_grads])?;
        Ok((Some(input_grad), Kept::nested(ctx, [pending, linear])))
    }

    /// Backward-input of the cheap layer, without its output.
    fn backward_cheap(
        &mut self,
        saved: Kept,
        inner_grad: Tensor,
        onto: Option<Tensor>,
    ) -> Result<(Option<Tensor>, Kept)> {
        match onto {
            Some(onto) => {
                let (input_grad, pending) = self.cheap.backward_input_onto(saved, inner_grad, onto)?;
                Ok((Some(input_grad), pending))
            }
            None => self.cheap.backward_input(saved, inner_grad),
        }
    }
}

impl<C: Cheap> Layer for Recomputed<C> {
    fn name(&self) -> &str {
        self.linear.name()
    }

    fn runs_on_gpus(&self) -> bool {
        self.cheap.runs_on_gpus()
    }

    fn output_shape(&self, input: &Shape) -> Result<Shape> {
        let inner = self.cheap.output_shape(input).map_err(|error| error.at(self.cheap.name()))?;
        self.linear.output_shape(&inner)
    }

    fn forward(&mut self, ctx: ForwardContext, input: Tensor) -> Result<(Tensor, Kept)> {
        let (inner, cheap) = self.cheap.forward(ctx, input).map_err(|error| error.at(self.cheap.name()))?;
        let (output, linear) = self.linear.forward(ctx, inner)?;
        Ok((output, self.kept(ctx, cheap, linear)))
    }

    fn forward_onto(&mut self, ctx: ForwardContext, input: Tensor, onto: Tensor) -> Result<(Tensor, Kept)> {
        let (inner, cheap) = self.cheap.forward(ctx, input).map_err(|error| error.at(self.cheap.name()))?;
        let (output, linear) = self.linear.forward_onto(ctx, inner, onto)?;
        Ok((output, self.kept(ctx, cheap, linear)))
    }

    fn defer_head(&mut self, rows: usize) -> usize {
        self.linear.defer_head(rows)
    }

    fn forward_before_head(&mut self, ctx: ForwardContext, input: Tensor) -> Result<(Tensor, Kept)> {
        self.cheap.forward(ctx, input).map_err(|error| error.at(self.cheap.name()))
    }

    fn head_and_loss(
        &mut self,
        ctx: ForwardContext,
        input: Tensor,
        loss: &mut MicroBatchLoss<'_, Tensor>,
    ) -> Result<Option<Tensor>> {
        self.linear.head_and_loss(ctx, input, loss)
    }

    fn splits_backward(&mut self) -> bool {
        self.cheap.splits_backward() || self.linear.splits_backward()
    }

    fn forward_next(&mut self, past: usize, input: Tensor) -> Result<Tensor> {
        let inner = self.cheap.forward_next(past, input);
        let inner = inner.map_err(|error| error.at(self.cheap.name()))?;
        self.linear.forward_next(past, inner)
    }

    fn forward_again(&mut self, ctx: ForwardContext, input: Tensor) -> Result<Kept> {
        if !self.keeps_inner(ctx) {
            let cheap = self.cheap.forward_again(ctx, input);
            let cheap = cheap.map_err(|error| error.at(self.cheap.name()))?;
            return Ok(self.kept(ctx, cheap, Kept::new(ctx, [])));
        }
        let (inner, cheap) = self.cheap.forward(ctx, input).map_err(|error| error.at(self.cheap.name()))?;
        Ok(Kept::nested(ctx, [cheap, Kept::new(ctx, [inner])]))
    }

    fn backward_input(&mut self, saved: Kept, grad: Tensor) -> Result<(Option<Tensor>, Kept)> {
        let ctx = saved.ctx;
        if self.linear.is_deferred() {
            let (input_grad, pending) = self.cheap.backward_input(saved, grad)?;
            return Ok((input_grad, Kept::nested(ctx, [pending])));
        }
        self.backward(saved, grad, None)
    }

    fn backward_input_onto(&mut self, saved: Kept, grad: Tensor, onto: Tensor) -> Result<(Tensor, Kept)> {
        let (sum, pending) = self.backward(saved, grad, Some(onto))?;
        Ok((sum.expect("what is added is there"), pending))
    }

    fn backward_weight(&mut self, pending: Kept) -> Result<()> {
        if !self.linear.is_trained() || self.linear.is_deferred() {
            let [cheap] = pending.into_inner();
            return self.cheap.backward_weight(cheap);
        }
        let [cheap, linear] = pending.into_inner();
        self.linear.backward_weight(linear)?;
        self.cheap.backward_weight(cheap)
    }

    fn visit_parameters<'a>(&'a mut self, visit: &mut dyn FnMut(&'a mut Parameter)) {
        self.cheap.visit_parameters(visit);
        self.linear.visit_parameters(visit);
    }

    fn adapt(&mut self, choose: &mut ChooseLora<'_>) -> Result<()> {
        self.linear.adapt(choose)
    }

    fn merge_adapters(&mut self) {
        self.linear.merge_adapters();
    }

    fn divided_output(&self) -> Option<&Division> {
        self.linear.divided_output()
    }

    fn join(&mut self, team: &Team) -> Result<()> {
        self.cheap.join(team).map_err(|error| error.at(self.cheap.name()))?;
        self.linear.join(team)
    }

    fn keep_apart(&mut self, borders: &Borders) -> Result<()> {
        self.cheap.keep_apart(borders).map_err(|error| error.at(self.cheap.name()))?;
        self.linear.keep_apart(borders)
    }

    fn recompute(&mut self, how: Recompute) {
        self.how = how;
    }

    fn hold_in_bf16(&mut self) {
        self.cheap.hold_in_bf16();
        self.linear.hold_in_bf16();
    }

    fn visit_gradients<'a>(&'a mut self, visit: &mut dyn FnMut(&'a mut Parameter)) {
        self.cheap.visit_gradients(visit);
        self.linear.visit_gradients(visit);
    }
}
