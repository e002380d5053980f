//! A mixture of experts.

pub(crate) mod choice;
pub(crate) mod cpu;
pub(crate) mod mlps;
pub(crate) mod placed;
pub(crate) mod routing;
mod spread;

use std::borrow::Cow;

use self::choice::Choice;
use self::mlps::Mlps;
use self::placed::Placed;
use self::spread::Spread;
use super::Linear;
use super::linear::weight_matrix::WeightMatrix;
use crate::cpu::real::in_format;
use crate::device::{Device, Place};
use crate::error::{Error, Result, check_positive, check_rows};
use crate::parameter::Parameter;
use crate::parameter::init::Init;
use crate::shape::Shape;
use crate::shards::{Division, Sharding, Team};
use crate::stage::borders::Borders;
use crate::stage::kept::Kept;
use crate::stage::layer::Layer;
use crate::stage::{ForwardContext, WRITING};
use crate::tensor::Tensor;

pub use self::routing::Routing;

/// A mixture of experts: numbers `[.., dim]` to `[.., dim]`, each row a token. Jiang et
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
///
/// Shards have the experts that [`Experts::divided`] gives them. All of them score all tokens, so they know
/// each other's choice. A shard gathers the tokens, computes the rows of its experts, and sends each row to
/// the shard of its token, which adds up its tokens' rows. The order of all sums is the same for any number
/// of shards.
#[derive(Debug)]
pub struct Experts {
    name: String,
    dim: usize,
    routing: Routing,
    router: Linear,
    mlps: Mlps,
    /// The choice of all tokens.
    choice: Choice,
    /// How the experts are divided among shards.
    experts: Division,
    /// The shards, if there are several.
    spread: Option<Spread>,
}

impl Experts {
    /// A layer whose weights start as `init` says, with random numbers from `seed`. The sizes are `[dim,
    /// ffn]`: the width of a token, and the width inside an expert.
    ///
    /// # Errors
    /// When a size is 0, or the routing is impossible.
    pub fn new(name: &str, sizes: [usize; 2], routing: Routing, init: Init, seed: u64) -> Result<Self> {
        Self::divided(name, sizes, routing, Sharding::default(), init, seed)
    }

    /// As [`Experts::new`], of experts that are divided among shards.
    ///
    /// # Errors
    /// As there, and when there are more shards than experts.
    pub fn divided(
        name: &str,
        [dim, ffn]: [usize; 2],
        routing: Routing,
        sharding: Sharding,
        init: Init,
        seed: u64,
    ) -> Result<Self> {
        check_positive(&[("dim", dim), ("ffn", ffn)])
            .and_then(|()| routing.check())
            .map_err(|error| error.at(name))?;
        let experts = Division::new(sharding, routing.experts, &[1]).map_err(|error| error.at(name))?;
        let router = Linear::new(&format!("{name}.router"), [dim, routing.experts], init, seed);
        Ok(Self {
            name: name.to_owned(),
            dim,
            routing,
            router: router.without_bias(),
            mlps: Mlps::new(name, [dim, ffn], &experts, routing, init, seed),
            choice: Choice::default(),
            experts,
            spread: None,
        })
    }

    /// All rows, of which a shard may have some.
    fn whole<'a>(&self, rows: &'a Tensor) -> Result<Cow<'a, Tensor>> {
        match &self.spread {
            Some(spread) => Ok(Cow::Owned(spread.team().gather(rows)?)),
            None => Ok(Cow::Borrowed(rows)),
        }
    }

    /// The rows of the experts that are here.
    fn placed<'a>(
        tokens: &Tensor,
        choice: &'a mut Choice,
        spread: Option<&Spread>,
        routing: Routing,
    ) -> Result<Placed<'a>> {
        match spread {
            Some(spread) => Placed::of_experts(tokens, choice, routing, spread.own()),
            None => Placed::of(tokens, choice, routing),
        }
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
        match &self.spread {
            Some(spread) => spread.team().check_own(input, self.dim)?,
            None => check_rows(input, self.dim)?,
        }
        Ok(*input)
    }

    fn join(&mut self, team: &Team) -> Result<()> {
        if self.experts.shard() != team.shard() {
            return Err(Error::new("its experts are not divided: see `Experts::divided`"));
        }
        self.spread = Some(Spread::new(team, &self.experts));
        Ok(())
    }

    /// It treats each row alone.
    fn keep_apart(&mut self, _borders: &Borders) -> Result<()> {
        Ok(())
    }

    fn forward(&mut self, ctx: ForwardContext, input: Tensor) -> Result<(Tensor, Kept)> {
        self.output_shape(input.shape())?;
        let all = self.whole(&input)?;
        let scores = self.route(ctx, &all)?;
        let rows = Self::placed(&all, &mut self.choice, self.spread.as_ref(), self.routing)?;
        let gate_up = self.mlps.gate_up(&rows, &all, WeightMatrix::forward_rows)?;
        drop(all);
        let outputs = self.mlps.outputs(&rows, &gate_up, WeightMatrix::forward_rows)?;
        let output = match &mut self.spread {
            Some(spread) => {
                let (outputs, own) = spread.bring(&rows, &outputs, self.routing)?;
                own.mixed(&outputs, &input)?
            }
            None => rows.mixed(&outputs, &input)?,
        };
        Ok((output, self.kept(ctx, input, [scores, gate_up])?))
    }

    fn forward_again(&mut self, ctx: ForwardContext, input: Tensor) -> Result<Kept> {
        let all = self.whole(&input)?;
        let scores = self.route(ctx, &all)?;
        let rows = Self::placed(&all, &mut self.choice, self.spread.as_ref(), self.routing)?;
        let gate_up = self.mlps.gate_up(&rows, &all, WeightMatrix::forward_rows)?;
        drop(all);
        self.kept(ctx, input, [scores, gate_up])
    }

    fn forward_next(&mut self, past: usize, input: Tensor) -> Result<Tensor> {
        if self.spread.is_some() {
            return Ok(self.forward(WRITING, input)?.0);
        }
        self.output_shape(input.shape())?;
        let scores = self.router.forward_next(past, input.clone())?;
        self.choose(&scores)?;
        let rows = Placed::of(&input, &mut self.choice, self.routing)?;
        if input.shape().rows() == 1 && input.place() == Place::default() {
            return self.mlps.next(&rows, &input);
        }
        let gate_up = self.mlps.gate_up(&rows, &input, WeightMatrix::forward_rows_next)?;
        let outputs = self.mlps.outputs(&rows, &gate_up, WeightMatrix::forward_rows_next)?;
        rows.mixed(&outputs, &input)
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
        let grad = self.whole(&grad)?.into_owned();
        let mut rows = Self::placed(&grad, &mut self.choice, self.spread.as_ref(), self.routing)?;
        let [mut slopes, values] = self.mlps.inner_grads(&rows, &mut gate_up, &grad)?;
        if let Some(spread) = &self.spread {
            slopes = spread.gather(&rows, slopes)?;
        }
        let scores_grad = rows.scores_grad(&scores, &slopes)?;
        let mut input_grad = self.router.input_grad(ctx, &scores_grad)?;
        let input_grads = self.mlps.input_grads(&rows, &gate_up)?;
        match &mut self.spread {
            Some(spread) => {
                input_grad = spread.team().own_part(&input_grad)?;
                let (input_grads, own) = spread.bring(&rows, &input_grads, self.routing)?;
                own.add(&mut input_grad, &input_grads)?;
            }
            None => rows.add(&mut input_grad, &input_grads)?,
        }
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
        let input = self.whole(&input)?.into_owned();
        let rows = Self::placed(&grad, &mut self.choice, self.spread.as_ref(), self.routing)?;
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
