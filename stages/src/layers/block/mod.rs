//! Layers that are composed of others.

pub(crate) mod branches;

use self::branches::{Branches, Join};
use crate::error::{Error, Result};
use crate::parameter::Parameter;
use crate::shape::Shape;
use crate::shards::Team;
use crate::stage::borders::Borders;
use crate::stage::chain::Chain;
use crate::stage::kept::{Kept, List};
use crate::stage::layer::{ChooseLora, Layer};
use crate::stage::recompute::Recompute;
use crate::stage::{ForwardContext, Mode};
use crate::tensor::Tensor;

/// Layers composed into one: a chain, or branches whose outputs are added, multiplied or put side by side.
///
/// | made by | computes |
/// | --- | --- |
/// | [`Block::chain`] | `f(x)`, where `f` is a chain of layers |
/// | [`Block::residual`] | `x + f(x)`: the sum of nothing and of a chain |
/// | [`Block::sum`] | `f(x) + g(x) + ..` |
/// | [`Block::product`] | `f(x) g(x) ..`, number by number: a gate |
/// | [`Block::concat`] | `[f(x), g(x), ..]`, side by side in the innermost dimension |
/// | [`Block::of_columns`] | the same with `f(a)`, `g(b)`, .. for an input `[a, b, ..]` |
/// | [`Block::repeated`] | `f(f(..))`, with the same weights each time |
///
/// A branch is a chain of layers. One without layers gives its input. Blocks may be inside of blocks, and on
/// GPUs if all layers inside may. Nothing has to be derived, and only the layers have parameters.
///
/// A block keeps what its layers keep; a product also keeps the outputs of its branches. If it recomputes its
/// interior, it keeps only its input. Gradients of an input that several branches get are added in the order
/// of the branches.
///
/// ```
/// use pipewright_stages::layers::{Block, Gelu, GeluForm, Linear};
/// use pipewright_stages::{Init, Layer, Shape, chain};
///
/// let linear = |name: &str, sizes| Linear::new(name, sizes, Init::Normal(0.02), 1);
/// // x + down(gelu(gate x) * up x)
/// let gate = chain![linear("gate", [8, 32]), Gelu::new("gelu", GeluForm::Tanh)];
/// let gated = Block::product("gated", [gate, chain![linear("up", [8, 32])]]);
/// let block = Block::residual("block", chain![gated, linear("down", [32, 8])]);
/// assert_eq!(block.output_shape(&Shape::f32(&[2, 8]))?, Shape::f32(&[2, 8]));
/// # Ok::<(), pipewright_stages::Error>(())
/// ```
#[derive(Debug)]
pub struct Block {
    name: String,
    branches: Branches,
    times: usize,
    recompute: bool,
}

impl Block {
    /// A chain of layers under one name: `f(x)`.
    pub fn chain(name: &str, layers: Vec<Box<dyn Layer>>) -> Self {
        Self::sum(name, [layers])
    }

    /// A residual connection: `x + f(x)`, where the chain `f` keeps the shape. He et al., "Deep residual
    /// learning" (2016).
    pub fn residual(name: &str, layers: Vec<Box<dyn Layer>>) -> Self {
        Self::sum(name, [Vec::new(), layers])
    }

    /// The sum of branches, whose outputs have one shape. They are added in the order of the branches.
    pub fn sum(name: &str, branches: impl IntoIterator<Item = Vec<Box<dyn Layer>>>) -> Self {
        Self::new(name, Join::Sum, branches)
    }

    /// The product of branches, number by number: outputs of one shape, multiplied in the order of the
    /// branches. The gradient of a branch is the gradient of the output, times the outputs of the other
    /// branches in their order.
    pub fn product(name: &str, branches: impl IntoIterator<Item = Vec<Box<dyn Layer>>>) -> Self {
        Self::new(name, Join::Product, branches)
    }

    /// The outputs of branches side by side in the innermost dimension. Their other dimensions are equal.
    pub fn concat(name: &str, branches: impl IntoIterator<Item = Vec<Box<dyn Layer>>>) -> Self {
        Self::new(name, Join::Concat, branches)
    }

    fn new(name: &str, join: Join, branches: impl IntoIterator<Item = Vec<Box<dyn Layer>>>) -> Self {
        let chains = branches.into_iter().map(Chain::inside).collect();
        Self { name: name.to_owned(), branches: Branches::new(chains, join), times: 1, recompute: false }
    }

    /// The same block, whose branches each get columns of their own. `widths` says how many numbers of the
    /// innermost dimension each branch gets, from left to right. Together these are all columns of the input.
    ///
    /// So several tensors of the same rows can go through one wire between stages, side by side.
    #[must_use]
    pub fn of_columns(mut self, widths: &[usize]) -> Self {
        self.branches.set_columns(widths);
        self
    }

    /// The same block, used `times` times one after the other, with the same weights. It must keep the shape.
    ///
    /// The weights' gradients of a micro-batch are added from the last use to the first. Dropout inside draws
    /// the same places each time. A layer keeps the keys and values of one text, so a block that is used
    /// more than once writes no text.
    #[must_use]
    pub fn repeated(mut self, times: usize) -> Self {
        self.times = times;
        self.expect_all_uses();
        self
    }

    /// Lets weights take gradients of several uses in one micro-batch.
    fn expect_all_uses(&mut self) {
        if self.times > 1 {
            self.visit_gradients(&mut Parameter::expect_several);
        }
    }

    /// What all uses keep, when it is not only the input.
    fn run_again(&mut self, ctx: ForwardContext, mut input: Tensor) -> Result<Kept> {
        let mut kept = List::with_room(self.times);
        for _ in 1..self.times {
            let (output, saved) = self.branches.forward(ctx, input)?;
            kept.push(saved);
            input = output;
        }
        if self.times > 0 {
            kept.push(self.branches.forward_again(ctx, input)?);
        }
        Ok(Kept::listed(ctx, kept))
    }
}

impl Layer for Block {
    fn name(&self) -> &str {
        &self.name
    }

    fn runs_on_gpus(&self) -> bool {
        let mut layers = self.branches.chains().iter().flat_map(|chain| &chain.layers);
        layers.all(|layer| layer.runs_on_gpus())
    }

    fn output_shape(&self, input: &Shape) -> Result<Shape> {
        (0..self.times).try_fold(*input, |shape, _| self.branches.output_shape(&shape))
    }

    fn forward(&mut self, ctx: ForwardContext, mut input: Tensor) -> Result<(Tensor, Kept)> {
        let first = (self.recompute && ctx.mode == Mode::Train).then(|| input.clone());
        let mut kept = List::with_room(self.times);
        for _ in 0..self.times {
            let (output, saved) = self.branches.forward(ctx, input)?;
            if first.is_none() {
                kept.push(saved);
            }
            input = output;
        }
        let kept = match first {
            Some(first) => Kept::new(ctx, [first]),
            None => Kept::listed(ctx, kept),
        };
        Ok((input, kept))
    }

    fn forward_again(&mut self, ctx: ForwardContext, input: Tensor) -> Result<Kept> {
        if self.recompute {
            return Ok(Kept::new(ctx, [input]));
        }
        self.run_again(ctx, input)
    }

    fn forward_next(&mut self, past: usize, input: Tensor) -> Result<Tensor> {
        if self.times > 1 {
            return Err(Error::new(
                "a repeated block writes no text: its layers keep the keys and values of one use; write the \
                 layers once for each use, with `Parameter::tied` weights",
            ));
        }
        self.branches.forward_next(past, input)
    }

    fn backward_input(&mut self, saved: Kept, grad: Tensor) -> Result<(Option<Tensor>, Kept)> {
        let ctx = saved.ctx;
        let mut saved = match self.recompute {
            true => {
                let [input] = saved.into_tensors();
                self.run_again(ctx, input)?
            }
            false => saved,
        };
        let mut pending = List::with_room(self.times);
        let mut grad = Some(grad);
        for kept in saved.take_inner().rev() {
            let Some(output_grad) = grad else { break };
            let (input_grad, weight) = self.branches.backward_input(kept, output_grad)?;
            pending.push(weight);
            grad = input_grad;
        }
        Ok((grad, Kept::listed(ctx, pending)))
    }

    fn backward_weight(&mut self, mut pending: Kept) -> Result<()> {
        let mut uses = pending.take_inner();
        uses.try_for_each(|kept| self.branches.backward_weight(kept))
    }

    fn visit_parameters<'a>(&'a mut self, visit: &mut dyn FnMut(&'a mut Parameter)) {
        let chains = self.branches.chains_mut().iter_mut();
        chains.for_each(|chain| chain.visit_parameters(visit));
    }

    fn visit_gradients<'a>(&'a mut self, visit: &mut dyn FnMut(&'a mut Parameter)) {
        let chains = self.branches.chains_mut().iter_mut();
        chains.for_each(|chain| chain.visit_gradients(visit));
    }

    fn adapt(&mut self, choose: &mut ChooseLora<'_>) -> Result<()> {
        let mut chains = self.branches.chains_mut().iter_mut();
        chains.try_for_each(|chain| chain.adapt(choose))?;
        self.expect_all_uses();
        Ok(())
    }

    fn merge_adapters(&mut self) {
        let chains = self.branches.chains_mut().iter_mut();
        chains.for_each(Chain::merge_adapters);
    }

    /// All uses but the first need theirs, and one is as the other.
    fn drop_input_gradient(&mut self) {
        if self.times == 1 {
            self.branches.drop_input_gradient();
        }
    }

    fn join(&mut self, team: &Team) -> Result<()> {
        let mut chains = self.branches.chains_mut().iter_mut();
        chains.try_for_each(|chain| chain.join(team))
    }

    fn keep_apart(&mut self, borders: &Borders) -> Result<()> {
        let mut chains = self.branches.chains_mut().iter_mut();
        chains.try_for_each(|chain| chain.keep_apart(borders))
    }

    fn hold_in_bf16(&mut self) {
        let layers = self.branches.chains_mut().iter_mut();
        let layers = layers.flat_map(|chain| &mut chain.layers);
        layers.for_each(|layer| layer.hold_in_bf16());
    }

    fn splits_backward(&mut self) -> bool {
        self.branches.chains_mut().iter_mut().any(Chain::splits_backward)
    }

    fn recompute(&mut self, how: Recompute) {
        self.recompute = how == Recompute::Selective;
        let chains = self.branches.chains_mut().iter_mut();
        chains.flat_map(|chain| &mut chain.layers).for_each(|layer| layer.recompute(how));
    }
}
