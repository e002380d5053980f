//! Layers that run one after the other: the inside of a stage, and of a layer that is made of layers.

use crate::device::Place;
use crate::error::{Error, ErrorKind, Result};
use crate::loss::MicroBatchLoss;
use crate::parameter::Parameter;
use crate::parameter::description::Part;
use crate::shape::{Kind, Shape};
use crate::shards::Team;
use crate::stage::borders::Borders;
use crate::stage::kept::{Entry, Kept, List};
use crate::stage::layer::{ChooseLora, Layer, check_input_grad, input_grad_onto, output_onto};
use crate::stage::{ForwardContext, Mode, current};
use crate::tensor::Tensor;

/// A chain of layers. Without layers it gives its input.
#[derive(Debug)]
pub(crate) struct Chain {
    pub(crate) layers: Vec<Box<dyn Layer>>,
    /// The layers before this one run forward only, and keep nothing.
    first_trained: usize,
    /// Whether it is a stage, and so says which layer the thread runs.
    is_stage: bool,
    /// The shards, if there are several.
    team: Option<Team>,
}

/// Layers in a row, and the place of the first one in its stage: `None` inside of another layer.
type Row<'a> = (&'a mut [Box<dyn Layer>], Option<usize>, Option<&'a Team>);

impl Chain {
    /// The layers of a stage.
    pub(crate) fn of_stage(layers: Vec<Box<dyn Layer>>) -> Self {
        Self { is_stage: true, ..Self::inside(layers) }
    }

    /// Layers inside of another layer.
    pub(crate) fn inside(layers: Vec<Box<dyn Layer>>) -> Self {
        Self { layers, first_trained: 0, is_stage: false, team: None }
    }

    /// The layers that run forward only, and those that are trained.
    fn rows(&mut self) -> (Row<'_>, Row<'_>) {
        let place = |index| self.is_stage.then_some(index);
        let (before, trained) = self.layers.split_at_mut(self.first_trained);
        let team = self.team.as_ref();
        ((before, place(0), team), (trained, place(self.first_trained), team))
    }

    /// All layers.
    fn row(&mut self) -> Row<'_> {
        (&mut self.layers, self.is_stage.then_some(0), self.team.as_ref())
    }

    /// The input gradient, if somebody may use it.
    fn given_back(&self, input_grad: Option<Tensor>) -> Option<Tensor> {
        input_grad.filter(|_| self.first_trained == 0)
    }

    /// The shape of the last layer's output.
    pub(crate) fn output_shape(&self, input: &Shape) -> Result<Shape> {
        self.layers.iter().try_fold(*input, |shape, layer| {
            layer.output_shape(&shape).map_err(|error| error.at(layer.name()))
        })
    }

    /// Runs forward of all layers, and adds the output to `onto`, if it is given. In evaluation nothing is
    /// kept.
    pub(crate) fn forward(
        &mut self,
        ctx: ForwardContext,
        input: Tensor,
        onto: Option<Tensor>,
    ) -> Result<(Tensor, Kept)> {
        let (before, trained) = self.rows();
        let (first, last) = match trained.0.is_empty() {
            true => (onto, None),
            false => (None, onto),
        };
        let input = run(before, ctx, input, first, None)?;
        let mut kept = List::with_room(trained.0.len());
        let output = run(trained, ctx, input, last, Some(&mut kept))?;
        Ok((output, Kept::listed(ctx, kept)))
    }

    /// As [`Layer::defer_head`], for the last layer.
    pub(crate) fn defer_head(&mut self, rows: usize) -> usize {
        let (_, (trained, ..)) = self.rows();
        trained.last_mut().map_or(0, |last| last.defer_head(rows))
    }

    /// As [`Layer::forward_before_head`], of all layers.
    pub(crate) fn forward_before_head(
        &mut self,
        ctx: ForwardContext,
        input: Tensor,
    ) -> Result<(Tensor, Kept)> {
        let (before, (layers, first, team)) = self.rows();
        let input = run(before, ctx, input, None, None)?;
        let mut kept = List::with_room(layers.len());
        let (last, layers) = layers.split_last_mut().expect("the last layer defers something");
        let index = layers.len();
        let input = run((layers, first, team), ctx, input, None, Some(&mut kept))?;
        current::begin(first, index);
        let shape = *input.shape();
        let ran = last.forward_before_head(ctx, input);
        let (output, saved) = ran.map_err(|error| error.at(last.name()))?;
        if ctx.mode != Mode::Evaluate {
            kept.push_of(shape, saved);
        }
        Ok((output, Kept::listed(ctx, kept)))
    }

    /// As [`Layer::head_and_loss`], of the last layer.
    pub(crate) fn head_and_loss(
        &mut self,
        ctx: ForwardContext,
        input: Tensor,
        loss: &mut MicroBatchLoss<'_, Tensor>,
    ) -> Result<Option<Tensor>> {
        let (layers, first, _) = self.row();
        let (last, layers) = layers.split_last_mut().expect("the last layer defers something");
        current::begin(first, layers.len());
        last.head_and_loss(ctx, input, loss).map_err(|error| error.at(last.name()))
    }

    /// Computes again what all layers keep.
    pub(crate) fn forward_again(&mut self, ctx: ForwardContext, input: Tensor) -> Result<Kept> {
        let (before, trained) = self.rows();
        let input = run(before, ctx, input, None, None)?;
        run_again(trained, ctx, input)
    }

    /// Runs all layers on the next tokens of a text.
    pub(crate) fn forward_next(&mut self, past: usize, input: Tensor) -> Result<Tensor> {
        run_next(self.row(), past, input)
    }

    /// Like [`Chain::forward_next`], without the last layer.
    pub(crate) fn forward_next_but_last(&mut self, past: usize, input: Tensor) -> Result<Tensor> {
        let (layers, first, team) = self.row();
        let count = layers.len().saturating_sub(1);
        run_next((&mut layers[..count], first, team), past, input)
    }

    /// Runs the last layer on the next token of a text. Gives the input if there is none.
    pub(crate) fn last_forward_next(&mut self, past: usize, input: Tensor) -> Result<Tensor> {
        let (layers, first, team) = self.row();
        let last = layers.len().saturating_sub(1);
        run_next((&mut layers[last..], first.map(|first| first + last), team), past, input)
    }

    /// Runs backward-input of all layers, last first. It stops at a layer whose input has no gradient,
    /// because the layers before it get none. Adds the input gradient to `onto`, if it is given.
    pub(crate) fn backward_input(
        &mut self,
        saved: Kept,
        grad: Tensor,
        onto: Option<Tensor>,
    ) -> Result<(Option<Tensor>, Kept)> {
        let gives_back = self.first_trained == 0;
        let (_, trained) = self.rows();
        if gives_back {
            return run_back(trained, saved, grad, onto);
        }
        let (_, pending) = run_back(trained, saved, grad, None)?;
        Ok((onto, pending))
    }

    /// Runs backward-weight of the layers that backward-input reached, last first.
    pub(crate) fn backward_weight(&mut self, mut pending: Kept) -> Result<()> {
        let (_, (layers, first, _)) = self.rows();
        let layers = layers.iter_mut().enumerate().rev();
        for ((index, layer), kept) in layers.zip(pending.take_inner()) {
            current::begin(first, index);
            add_weight_gradients(layer.as_mut(), kept).map_err(|error| error.at(layer.name()))?;
        }
        Ok(())
    }

    /// Runs backward of all layers, last first. Each layer's weight gradients follow its input gradient at
    /// once, so what they need is freed early.
    pub(crate) fn backward(&mut self, mut saved: Kept, grad: Tensor) -> Result<Option<Tensor>> {
        let (_, (layers, first, _)) = self.rows();
        let mut grad = Some(grad);
        for ((index, layer), entry) in layers.iter_mut().enumerate().zip(saved.take_entries()).rev() {
            let Some(output_grad) = grad else { break };
            current::begin(first, index);
            let both =
                input_gradient(layer.as_mut(), entry, output_grad, None).and_then(|(input_grad, pending)| {
                    add_weight_gradients(layer.as_mut(), pending)?;
                    Ok(input_grad)
                });
            grad = both.map_err(|error| error.at(layer.name()))?;
        }
        Ok(self.given_back(grad))
    }

    /// Visits all layers' parameters, in order.
    pub(crate) fn visit_parameters<'a>(&'a mut self, visit: &mut dyn FnMut(&'a mut Parameter)) {
        self.layers.iter_mut().for_each(|layer| layer.visit_parameters(visit));
    }

    /// Visits all layers' parameters, in order, and drops no cache.
    pub(crate) fn visit_gradients<'a>(&'a mut self, visit: &mut dyn FnMut(&'a mut Parameter)) {
        self.layers.iter_mut().for_each(|layer| layer.visit_gradients(visit));
    }

    /// As [`Layer::adapt`], for all layers.
    pub(crate) fn adapt(&mut self, choose: &mut ChooseLora<'_>) -> Result<()> {
        let mut layers = self.layers.iter_mut();
        layers.try_for_each(|layer| layer.adapt(choose))
    }

    /// Makes the layers those of one shard.
    pub(crate) fn join(&mut self, team: &Team) -> Result<()> {
        self.team = Some(team.clone());
        let mut layers = self.layers.iter_mut();
        layers.try_for_each(|layer| {
            let joined = layer.join(team);
            joined.map_err(|error| error.at(layer.name()))
        })
    }

    /// As [`Layer::keep_apart`], for all layers. The error names the layer.
    pub(crate) fn keep_apart(&mut self, borders: &Borders) -> Result<()> {
        let mut layers = self.layers.iter_mut();
        layers.try_for_each(|layer| {
            let apart = layer.keep_apart(borders);
            apart.map_err(|error| error.at(layer.name()))
        })
    }

    /// As [`Layer::merge_adapters`], for all layers.
    pub(crate) fn merge_adapters(&mut self) {
        self.layers.iter_mut().for_each(|layer| layer.merge_adapters());
    }

    /// As [`Layer::splits_backward`], for any layer.
    pub(crate) fn splits_backward(&mut self) -> bool {
        self.layers.iter_mut().any(|layer| layer.splits_backward())
    }

    /// Says that nobody uses the input gradient. Layers before the first one that is trained run forward only
    /// from then on.
    pub(crate) fn drop_input_gradient(&mut self) {
        let is_trained = |layer: &mut Box<dyn Layer>| {
            let parameters = layer.parameters();
            parameters.iter().any(|parameter| !parameter.is_frozen())
        };
        let first = self.layers.iter_mut().position(is_trained);
        self.first_trained = first.unwrap_or(self.layers.len());
        if let Some(first) = first {
            self.layers[first].drop_input_gradient();
        }
    }
}

/// Runs forward of layers, and adds what they keep to the list, if there is one. The last layer adds its
/// output to `onto`, if it is given.
fn run(
    (layers, first, team): Row<'_>,
    ctx: ForwardContext,
    input: Tensor,
    mut onto: Option<Tensor>,
    mut kept: Option<&mut List>,
) -> Result<Tensor> {
    let mut tensor = input;
    let last = layers.len().saturating_sub(1);
    for (index, layer) in layers.iter_mut().enumerate() {
        current::begin(first, index);
        let shape = *tensor.shape();
        let ran = match onto.take_if(|_| index == last) {
            Some(onto) => layer.forward_onto(ctx, tensor, onto),
            None => layer.forward(ctx, tensor),
        };
        let (output, saved) = ran.map_err(|error| error.at(layer.name()))?;
        if ctx.mode == Mode::Probe {
            probe(layer.as_mut(), &output, team).map_err(|error| error.at(layer.name()))?;
        }
        if let Some(kept) = kept.as_mut().filter(|_| ctx.mode != Mode::Evaluate) {
            kept.push_of(shape, saved);
        }
        tensor = output;
    }
    match onto {
        // There was no layer. The input may be shared, and what it is added to is rather not.
        Some(onto) => output_onto(onto, &tensor),
        None => Ok(tensor),
    }
}

/// Computes again what layers keep. Layers at the end whose kept tensors need no input are not run.
fn run_again((layers, first, team): Row<'_>, ctx: ForwardContext, input: Tensor) -> Result<Kept> {
    let mut kept = List::with_room(layers.len());
    let rest =
        layers.iter().rposition(|layer| layer.kept_without_input(ctx).is_none()).map_or(0, |last| last + 1);
    let (layers, tail) = layers.split_at_mut(rest);
    let mut shape = *input.shape();
    if let Some((last, before)) = layers.split_last_mut() {
        let index = before.len();
        let tensor = run((before, first, team), ctx, input, None, Some(&mut kept))?;
        current::begin(first, index);
        let input = *tensor.shape();
        let output = last.output_shape(&input);
        shape = output.map_err(|error| error.at(last.name()))?;
        let saved = last.forward_again(ctx, tensor);
        kept.push_of(input, saved.map_err(|error| error.at(last.name()))?);
    }
    for layer in tail {
        let saved = layer.kept_without_input(ctx).expect("these layers need no input");
        kept.push_of(shape, saved);
        shape = layer.output_shape(&shape).map_err(|error| error.at(layer.name()))?;
    }
    Ok(Kept::listed(ctx, kept))
}

fn run_next((layers, first, _): Row<'_>, past: usize, input: Tensor) -> Result<Tensor> {
    let mut layers = layers.iter_mut().enumerate();
    layers.try_fold(input, |tensor, (index, layer)| {
        current::begin(first, index);
        let output = layer.forward_next(past, tensor);
        output.map_err(|error| error.at(layer.name()))
    })
}

/// Runs backward-input of layers, last first. The first layer adds its input gradient to `onto`, if there is
/// such.
fn run_back(
    (layers, first, _): Row<'_>,
    mut saved: Kept,
    grad: Tensor,
    mut onto: Option<Tensor>,
) -> Result<(Option<Tensor>, Kept)> {
    let mut pending = List::with_room(layers.len());
    let mut grad = Some(grad);
    for ((index, layer), entry) in layers.iter_mut().enumerate().zip(saved.take_entries()).rev() {
        let Some(output_grad) = grad else { break };
        current::begin(first, index);
        let onto = onto.take_if(|_| index == 0);
        let (input_grad, weight) = input_gradient(layer.as_mut(), entry, output_grad, onto)
            .map_err(|error| error.at(layer.name()))?;
        pending.push(weight);
        grad = input_grad;
    }
    if let Some(onto) = onto {
        // The first layer was not reached, or there is none.
        grad = Some(match grad {
            Some(grad) => input_grad_onto(Some(onto), grad)?,
            None => onto,
        });
    }
    Ok((grad, Kept::listed(saved.ctx, pending)))
}

/// A layer's backward-input, whose input gradient is added to `onto`, if it is given. Fails if the input
/// gradient's shape is not the input's.
#[inline]
fn input_gradient(
    layer: &mut dyn Layer,
    entry: Entry,
    grad: Tensor,
    onto: Option<Tensor>,
) -> Result<(Option<Tensor>, Kept)> {
    let (input_grad, pending) = match onto {
        Some(onto) => {
            let (sum, pending) = layer.backward_input_onto(entry.kept, grad, onto)?;
            (Some(sum), pending)
        }
        None => layer.backward_input(entry.kept, grad)?,
    };
    if let (Some(grad), Some(expected)) = (&input_grad, entry.input)
        && expected.kind() == Kind::F32
    {
        check_input_grad(&expected, grad)?;
    }
    Ok((input_grad, pending))
}

/// A layer's backward-weight. In a debug build it fails if a gradient has another length than its weights.
#[inline]
fn add_weight_gradients(layer: &mut dyn Layer, pending: Kept) -> Result<()> {
    layer.backward_weight(pending)?;
    if cfg!(debug_assertions) {
        return check_weight_gradients(layer);
    }
    Ok(())
}

fn check_weight_gradients(layer: &mut dyn Layer) -> Result<()> {
    let mut wrong = None;
    layer.visit_gradients(&mut |parameter| {
        if parameter.grad.len() != parameter.trained() {
            wrong.get_or_insert(Error::new(format!(
                "backward_weight left a gradient of {} numbers in `{}`, which is {:?} and needs {}: add to \
                 `Parameter::grad`, and never replace it",
                parameter.grad.len(),
                parameter.name(),
                parameter.dims(),
                parameter.trained()
            )));
        }
    });
    wrong.map_or(Ok(()), Err)
}

/// Fails when a layer's parameter or output is not finite. Then it fails on all shards: none may wait for one
/// that has stopped.
fn probe(layer: &mut dyn Layer, output: &Tensor, team: Option<&Team>) -> Result<()> {
    let finite = |numbers: &[f32]| numbers.iter().all(|number| number.is_finite());
    let mut found = FINITE;
    if output.shape().kind() == Kind::F32 && !finite(output.clone().to(Place::default())?.f32()) {
        found = OF_OUTPUT;
    }
    let mut parameters = layer.parameters();
    for (index, parameter) in parameters.iter_mut().enumerate().rev() {
        parameter.fetch(Part::Value)?;
        if !finite(&parameter.numbers()) {
            found = OF_OUTPUT + 1 + index;
        }
    }
    match team.map_or(Ok(found), |team| team.first_of(found))? {
        FINITE => Ok(()),
        OF_OUTPUT => Err(ErrorKind::OutputNotFinite.into()),
        parameter => {
            let name = parameters[parameter - OF_OUTPUT - 1].name().into();
            Err(ErrorKind::ParameterNotFinite(name).into())
        }
    }
}

/// What is not finite: nothing, the output, or a parameter, which counts from the next number on.
const FINITE: usize = 0;
const OF_OUTPUT: usize = 1;
