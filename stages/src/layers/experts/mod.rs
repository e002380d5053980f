//! A mixture of experts.

pub(crate) mod choice;
pub(crate) mod cpu;
pub(crate) mod mlps;
pub(crate) mod placed;
pub(crate) mod routing;

use self::choice::Choice;
use self::mlps::Mlps;
use self::placed::Placed;
use super::Linear;
use crate::cpu::real::in_format;
use crate::device::{Device, Place};
use crate::error::{Result, check_positive, check_rows};
use crate::parameter::Parameter;
use crate::parameter::init::Init;
use crate::shape::Shape;
use crate::stage::ForwardContext;
use crate::stage::kept::Kept;
use crate::stage::layer::Layer;
use crate::tensor::Tensor;

pub use self::routing::Routing;

/// A mixture of experts, all on one device: numbers `[.., dim]` to `[.., dim]`, each row a token. Jiang et
/// al., "Mixtral of experts" (2024).
///
/// The router is a linear layer without a bias, from a token to a score for each expert. The experts with the
/// largest scores, of equal ones the first, compute the token. Their outputs are added, each times its
/// weight: the softmax over all scores, divided by the sum over the chosen experts, as in Mixtral. An expert
/// is `down(silu(gate x) * up x)`. Its tokens are computed in their order, as one product.
///
/// Parameters: `{name}.router.weight`, `[experts, dim]`; of each expert `{name}.experts.0.gate_up.weight`,
/// `[2 ffn, dim]`, gate first, and `{name}.experts.0.down.weight`, `[dim, ffn]`, and so on. It keeps the
/// scores, gate and up of every token and expert, which experts were chosen with which weights, and its input
/// unless all parameters are frozen. It takes no low-rank adapters. On a GPU, each forward waits for the
/// scores, because the host chooses.
///
/// With [`Routing::auxiliary`], backward adds the gradient of a second loss, which the output does not show.
#[derive(Debug)]
pub struct Experts {
    name: String,
    dim: usize,
    routing: Routing,
    router: Linear,
    mlps: Mlps,
    choice: Choice,
}

impl Experts {
    /// A layer whose weights start as `init` says, with random numbers from `seed`. The sizes are `[dim,
    /// ffn]`: the width of a token, and the width inside an expert.
    ///
    /// # Errors
    /// When a size is 0, or the routing is impossible.
    pub fn new(name: &str, [dim, ffn]: [usize; 2], routing: Routing, init: Init, seed: u64) -> Result<Self> {
        check_positive(&[("dim", dim), ("ffn", ffn)])
            .and_then(|()| routing.check())
            .map_err(|error| error.at(name))?;
        let router = Linear::new(&format!("{name}.router"), [dim, routing.experts], init, seed);
        Ok(Self {
            name: name.to_owned(),
            dim,
            routing,
            router: router.without_bias(),
            mlps: Mlps::new(name, [dim, ffn], routing, init, seed),
            choice: Choice::default(),
        })
    }

    fn is_trained(&self) -> bool {
        self.router.is_trained() || self.mlps.are_trained()
    }

    /// What forward keeps.
    fn kept(&self, ctx: ForwardContext, input: Tensor, [scores, gate_up]: [Tensor; 2]) -> Result<Kept> {
        let input = self.is_trained().then_some(input);
        let tensors = Kept::new(ctx, [Some(scores), Some(gate_up), input].into_iter().flatten());
        let choice = Kept::new(ctx, self.choice.keep()?);
        Ok(Kept::nested(ctx, [tensors, choice]))
    }

    /// Chooses the experts of tokens with these scores. Waits for the scores if they are on a GPU.
    fn choose(&mut self, scores: &Tensor) -> Result<()> {
        let here = scores.clone().to(Place { device: Device::Cpu, ..scores.place() })?;
        in_format!(here.dtype(), N => self.choice.choose::<N>(here.numbers(), self.routing));
        Ok(())
    }

    /// Scores the tokens, and chooses their experts.
    fn route(&mut self, ctx: ForwardContext, input: &Tensor) -> Result<Tensor> {
        let (scores, _) = self.router.forward(ctx, input.clone())?;
        self.choose(&scores)?;
        Ok(scores)
    }
}

impl Layer for Experts {
    fn name(&self) -> &str {
        &self.name
    }

    fn runs_on_gpus(&self) -> bool {
        true
    }

    fn output_shape(&self, input: &Shape) -> Result<Shape> {
        check_rows(input, self.dim)?;
        Ok(*input)
    }

    fn forward(&mut self, ctx: ForwardContext, input: Tensor) -> Result<(Tensor, Kept)> {
        self.output_shape(input.shape())?;
        let scores = self.route(ctx, &input)?;
        let rows = Placed::of(&input, &mut self.choice, self.routing)?;
        let gate_up = self.mlps.gate_up(&rows, &input)?;
        let output = self.mlps.output(&rows, &gate_up, &input)?;
        Ok((output, self.kept(ctx, input, [scores, gate_up])?))
    }

    fn forward_again(&mut self, ctx: ForwardContext, input: Tensor) -> Result<Kept> {
        let scores = self.route(ctx, &input)?;
        let rows = Placed::of(&input, &mut self.choice, self.routing)?;
        let gate_up = self.mlps.gate_up(&rows, &input)?;
        self.kept(ctx, input, [scores, gate_up])
    }

    fn forward_next(&mut self, past: usize, input: Tensor) -> Result<Tensor> {
        self.output_shape(input.shape())?;
        let scores = self.router.forward_next(past, input.clone())?;
        self.choose(&scores)?;
        let rows = Placed::of(&input, &mut self.choice, self.routing)?;
        if input.shape().rows() == 1 && input.place() == Place::default() {
            return self.mlps.next(&rows, &input);
        }
        let gate_up = self.mlps.gate_up(&rows, &input)?;
        self.mlps.output(&rows, &gate_up, &input)
    }

    fn backward_input(&mut self, saved: Kept, grad: Tensor) -> Result<(Option<Tensor>, Kept)> {
        let ctx = saved.ctx;
        let [tensors, choice] = saved.into_inner();
        let (input, [scores, mut gate_up]) = match self.is_trained() {
            true => {
                let [scores, gate_up, input] = tensors.into_tensors();
                (Some(input), [scores, gate_up])
            }
            false => (None, tensors.into_tensors()),
        };
        let choice = choice.into_tensors();
        self.choice.restore(&choice, self.routing);
        let mut rows = Placed::of(&grad, &mut self.choice, self.routing)?;
        let [slopes, values] = self.mlps.inner_grads(&rows, &mut gate_up, &grad)?;
        let scores_grad = rows.scores_grad(&scores, &slopes)?;
        let mut input_grad = self.router.input_grad(ctx, &scores_grad)?;
        self.mlps.add_input_grad(&rows, &mut input_grad, &gate_up)?;
        let Some(input) = input else {
            return Ok((Some(input_grad), Kept::new(ctx, [])));
        };
        let router = Kept::new(ctx, [input, scores_grad]);
        let experts = Kept::new(ctx, [grad, gate_up, values]);
        let pending = Kept::nested(ctx, [router, experts, Kept::new(ctx, choice)]);
        Ok((Some(input_grad), pending))
    }

    fn backward_weight(&mut self, pending: Kept) -> Result<()> {
        if !self.is_trained() {
            return Ok(());
        }
        let ctx = pending.ctx;
        let [router, experts, choice] = pending.into_inner();
        let [input, scores_grad] = router.into_tensors();
        let [grad, gate_up, values] = experts.into_tensors();
        self.choice.restore(&choice.into_tensors(), self.routing);
        let rows = Placed::of(&grad, &mut self.choice, self.routing)?;
        self.mlps.add_down_grads(&rows, &values, &grad)?;
        self.mlps.add_gate_up_grads(&rows, &input, &gate_up)?;
        self.router.backward_weight(Kept::new(ctx, [input, scores_grad]))
    }

    fn visit_parameters<'a>(&'a mut self, visit: &mut dyn FnMut(&'a mut Parameter)) {
        self.router.visit_parameters(visit);
        self.mlps.visit_parameters(visit);
    }

    fn visit_gradients<'a>(&'a mut self, visit: &mut dyn FnMut(&'a mut Parameter)) {
        self.router.visit_gradients(visit);
        self.mlps.visit_gradients(visit);
    }
}
