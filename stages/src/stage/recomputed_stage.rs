//! Stages that compute activations again in backward instead of keeping them from forward.

use std::fmt;

use crate::device::Place;
use crate::error::Result;
use crate::loss::MicroBatchLoss;
use crate::parameter::Parameter;
use crate::parameter::packed::Packed;
use crate::shape::Shape;
use crate::shards::{Division, Shard, Team};
use crate::stage::borders::Borders;
use crate::stage::clock::Clock;
use crate::stage::recompute::Recompute;
use crate::stage::{BuildStage, ForwardContext, Mode, Stage, StageBuilder};
use crate::tensor::{Bytes, Tensor};

/// The builder of a stage that recomputes.
///
/// ```
/// use pipewright_stages::models::Mlp;
/// use pipewright_stages::{Bytes, Mode, ForwardContext, Recompute, Stage, Tensor, recompute};
///
/// let model = Mlp { sizes: vec![4, 64, 64, 2], dropout: 0.1, seed: 1 }.model()?;
/// let builders = model.split(2)?.into_iter().map(|stage| recompute(stage, Recompute::Full));
/// let mut first = builders.into_iter().next().expect("two stages").build()?;
///
/// let ctx = ForwardContext { step: 0, micro_batch: 0, mode: Mode::Train };
/// let (output, saved) = first.forward(ctx, Tensor::zeros(&[8, 4]))?;
/// assert_eq!(saved.bytes(), 8 * 4 * 4, "only the input is kept");
/// first.backward(saved, output)?;
/// # Ok::<(), pipewright_stages::Error>(())
/// ```
pub fn recompute<S: Stage<Wire: Clone>>(
    build: StageBuilder<S>,
    how: Recompute,
) -> StageBuilder<RecomputedStage<S>> {
    Box::new(Recomputing { build, how })
}

/// Makes stages that recompute.
struct Recomputing<S> {
    build: StageBuilder<S>,
    how: Recompute,
}

impl<S: Stage> BuildStage<RecomputedStage<S>> for Recomputing<S> {
    fn build(&self) -> Result<RecomputedStage<S>> {
        self.build_shard(Shard::WHOLE)
    }

    fn build_shard(&self, shard: Shard) -> Result<RecomputedStage<S>> {
        Ok(RecomputedStage::new(self.build.build_shard(shard)?, self.how))
    }

    /// Recomputing changes no number, so the processes may differ in it.
    fn describe(&self) -> String {
        self.build.describe()
    }
}

/// A stage that computes activations again in backward.
///
/// Its forward must depend only on the context, the input and the parameters, as it does for all stages of
/// this crate. With [`Recompute::Full`] it keeps a clone of the wire. Clones of a [`Tensor`] share memory.
#[derive(Debug)]
pub struct RecomputedStage<S> {
    stage: S,
    full: bool,
}

impl<S: Stage> RecomputedStage<S> {
    /// Wraps a stage, which must then be used only through the wrapper.
    pub fn new(mut stage: S, how: Recompute) -> Self {
        // With `Full`, what is made again is kept for a moment only.
        if how != Recompute::Full {
            stage.recompute(how);
        }
        Self { stage, full: how == Recompute::Full }
    }

    /// The input, if only that is kept.
    fn kept_input(&self, ctx: ForwardContext, input: &S::Wire) -> Option<RecomputedSaved<S>>
    where
        S::Wire: Clone,
    {
        (self.full && ctx.mode == Mode::Train).then(|| RecomputedSaved::Input(ctx, input.clone()))
    }

    /// What the stage's own forward keeps; runs it again if only the input was kept.
    fn whole(&mut self, saved: RecomputedSaved<S>) -> Result<S::Saved> {
        match saved {
            RecomputedSaved::Whole(saved) => Ok(saved),
            RecomputedSaved::Input(ctx, input) => self.stage.forward_again(ctx, input),
        }
    }
}

/// What a [`RecomputedStage`] keeps for backward-input.
pub enum RecomputedSaved<S: Stage> {
    /// What the stage's own forward keeps.
    Whole(S::Saved),
    /// What is needed to run forward again.
    Input(ForwardContext, S::Wire),
}

impl<S: Stage> Bytes for RecomputedSaved<S> {
    fn bytes(&self) -> u64 {
        match self {
            Self::Whole(saved) => saved.bytes(),
            Self::Input(_, input) => input.bytes(),
        }
    }

    fn visit_tensors(&mut self, visit: &mut dyn FnMut(&mut Tensor)) {
        match self {
            Self::Whole(saved) => saved.visit_tensors(visit),
            Self::Input(_, input) => input.visit_tensors(visit),
        }
    }
}

impl<S: Stage> fmt::Debug for RecomputedSaved<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RecomputedSaved({} bytes)", self.bytes())
    }
}

impl<S: Stage<Wire: Clone>> Stage for RecomputedStage<S> {
    type Wire = S::Wire;
    type Saved = RecomputedSaved<S>;
    type Pending = S::Pending;

    fn output_shape(&self, input: &Shape) -> Result<Shape> {
        self.stage.output_shape(input)
    }

    fn load(&mut self, input: Tensor) -> Result<S::Wire> {
        self.stage.load(input)
    }

    fn move_to(&mut self, place: Place) -> Result<()> {
        self.stage.move_to(place)
    }

    fn join(&mut self, team: &Team) -> Result<()> {
        self.stage.join(team)
    }

    fn keep_apart(&mut self, borders: &Borders) -> Result<()> {
        self.stage.keep_apart(borders)
    }

    fn divided_output(&self) -> Option<&Division> {
        self.stage.divided_output()
    }

    fn sum_rows(&mut self) -> Result<()> {
        self.stage.sum_rows()
    }

    fn narrow(&self, wire: S::Wire) -> Result<S::Wire> {
        self.stage.narrow(wire)
    }

    fn widen(&self, wire: S::Wire) -> Result<S::Wire> {
        self.stage.widen(wire)
    }

    fn receive(&mut self, wire: S::Wire) -> Result<S::Wire> {
        self.stage.receive(wire)
    }

    fn wire_of(&self, numbers: Packed) -> Result<S::Wire> {
        self.stage.wire_of(numbers)
    }

    fn packed_of(&self, wire: S::Wire) -> Result<Packed> {
        self.stage.packed_of(wire)
    }

    fn is_idle(&self) -> Result<bool> {
        self.stage.is_idle()
    }

    fn clock(&self) -> Result<Option<Box<dyn Clock>>> {
        self.stage.clock()
    }

    fn forward(&mut self, ctx: ForwardContext, input: S::Wire) -> Result<(S::Wire, Self::Saved)> {
        let kept = self.kept_input(ctx, &input);
        let (output, saved) = self.stage.forward(ctx, input)?;
        Ok((output, kept.unwrap_or(RecomputedSaved::Whole(saved))))
    }

    fn defer_head(&mut self, rows: usize) -> usize {
        self.stage.defer_head(rows)
    }

    fn forward_before_head(&mut self, ctx: ForwardContext, input: S::Wire) -> Result<(S::Wire, Self::Saved)> {
        let kept = self.kept_input(ctx, &input);
        let (output, saved) = self.stage.forward_before_head(ctx, input)?;
        Ok((output, kept.unwrap_or(RecomputedSaved::Whole(saved))))
    }

    fn head_and_loss(
        &mut self,
        ctx: ForwardContext,
        input: S::Wire,
        loss: &mut MicroBatchLoss<'_, S::Wire>,
    ) -> Result<Option<S::Wire>> {
        self.stage.head_and_loss(ctx, input, loss)
    }

    fn forward_next(&mut self, past: usize, input: S::Wire) -> Result<S::Wire> {
        self.stage.forward_next(past, input)
    }

    fn next_scores(&mut self, past: usize, input: S::Wire) -> Result<Vec<f32>> {
        self.stage.next_scores(past, input)
    }

    fn restore(&mut self, saved: Self::Saved) -> Result<Self::Saved> {
        let whole = self.whole(saved)?;
        Ok(RecomputedSaved::Whole(self.stage.restore(whole)?))
    }

    fn backward_input(&mut self, saved: Self::Saved, grad: S::Wire) -> Result<(Option<S::Wire>, S::Pending)> {
        let whole = self.whole(saved)?;
        self.stage.backward_input(whole, grad)
    }

    fn backward_weight(&mut self, pending: S::Pending) -> Result<()> {
        self.stage.backward_weight(pending)
    }

    fn backward(&mut self, saved: Self::Saved, grad: S::Wire) -> Result<Option<S::Wire>> {
        let whole = self.whole(saved)?;
        self.stage.backward(whole, grad)
    }

    fn layer_names(&self) -> Vec<String> {
        self.stage.layer_names()
    }

    fn parameter_layers(&mut self) -> Vec<String> {
        self.stage.parameter_layers()
    }

    fn visit_parameters<'a>(&'a mut self, visit: &mut dyn FnMut(&'a mut Parameter)) {
        self.stage.visit_parameters(visit);
    }

    fn visit_gradients<'a>(&'a mut self, visit: &mut dyn FnMut(&'a mut Parameter)) {
        self.stage.visit_gradients(visit);
    }
}
