//! The stage that is a chain of layers.

use std::rc::Rc;

use crate::clock::{Clock, clock};
use crate::cuda::{self, Gpu};
use crate::current;
use crate::device::{Device, Place};
use crate::error::{Result, ShapeError, ValueError};
use crate::kept::{Entry, Kept, List};
use crate::layer::{Chain, Layer, check_place};
use crate::lora::ChooseLora;
use crate::next::{forward_next, last_row};
use crate::packed::Packed;
use crate::parameter::{Parameter, Part};
use crate::shape::{Kind, Shape};
use crate::stage::{ForwardContext, Mode, Stage};
use crate::tensor::Tensor;

/// A [`Stage`] that runs layers one after the other.
#[derive(Debug)]
pub struct Sequential {
    layers: Vec<Box<dyn Layer>>,
    /// The layers before this one run forward only, and keep nothing.
    first_trained: usize,
    place: Place,
}

impl Sequential {
    /// A stage of these layers, on the CPU.
    pub fn new(layers: Vec<Box<dyn Layer>>) -> Self {
        Self {
            layers,
            first_trained: 0,
            place: Place::default(),
        }
    }

    /// The GPU that the stage is on.
    fn gpu(&self) -> Result<Option<Rc<Gpu>>> {
        match self.place.device {
            Device::Cpu => Ok(None),
            Device::Cuda(index) => Gpu::of(index).map(Some),
        }
    }

    /// Gives the stage its weights, layer by layer, and holds matrices in 16 bits from then on: see
    /// [`Layer::hold_in_bf16`]. `read` sets the weights of a parameter. Only one layer's weights are in
    /// memory in 32 bits at a time.
    ///
    /// # Errors
    /// Whatever `read` returns.
    pub fn read_in_bf16(&mut self, mut read: impl FnMut(&mut Parameter) -> Result<()>) -> Result<()> {
        for layer in &mut self.layers {
            let mut parameters = layer.parameters().into_iter();
            parameters.try_for_each(&mut read)?;
            layer.hold_in_bf16();
        }
        Ok(())
    }

    /// Says that nobody uses the stage's input gradient. For the first stage of a model, after it is known
    /// which parameters are frozen: layers before the first one that is trained run forward only.
    pub fn drop_input_gradient(&mut self) {
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

    /// As [`Layer::adapt`], for all layers.
    ///
    /// # Errors
    /// When there can be no such adapter.
    pub fn adapt(&mut self, choose: &mut ChooseLora<'_>) -> Result<()> {
        let mut layers = self.layers.iter_mut();
        layers.try_for_each(|layer| layer.adapt(choose))
    }

    /// As [`Layer::merge_adapters`], for all layers.
    pub fn merge_adapters(&mut self) {
        self.layers.iter_mut().for_each(|layer| layer.merge_adapters());
    }

    /// The layers that run backward, after those that do not.
    fn trained(&mut self) -> Chain<'_> {
        let first = self.first_trained;
        (&mut self.layers[first..], Some(first))
    }

    /// The stage's input gradient, if somebody may use it.
    fn given_back(&self, input_grad: Option<Tensor>) -> Result<Option<Tensor>> {
        let input_grad = input_grad.filter(|_| self.first_trained == 0);
        input_grad.as_ref().map_or(Ok(()), Tensor::mark_ready)?;
        Ok(input_grad)
    }
}

impl Stage for Sequential {
    type Wire = Tensor;
    type Saved = Kept;
    type Pending = Kept;

    fn output_shape(&self, input: &Shape) -> Result<Shape> {
        output_shape(&self.layers, input)
    }

    fn load(&mut self, input: Tensor) -> Result<Tensor> {
        input.to(self.place)
    }

    fn move_to(&mut self, place: Place) -> Result<()> {
        cuda::check(place)?;
        let mut layers = self.layers.iter();
        layers.try_for_each(|layer| check_place(layer.as_ref(), place))?;
        self.place = place;
        self.try_visit_parameters(&mut |parameter| {
            parameter
                .move_to(place)
                .map_err(|error| error.at(parameter.name()))
        })
    }

    fn receive(&mut self, wire: Tensor) -> Result<Tensor> {
        wire.arrive(self.place)
    }

    fn wire_of(&self, numbers: Packed) -> Result<Tensor> {
        numbers.into_tensor()
    }

    fn packed_of(&self, wire: Tensor) -> Result<Packed> {
        Packed::of_tensor(wire, self.place.device)
    }

    fn is_idle(&self) -> Result<bool> {
        self.gpu()?.map_or(Ok(true), |gpu| gpu.is_idle())
    }

    fn clock(&self) -> Result<Option<Box<dyn Clock>>> {
        clock(self.place.device)
    }

    fn forward(&mut self, ctx: ForwardContext, input: Tensor) -> Result<(Tensor, Kept)> {
        let first = self.first_trained;
        let (before, trained) = self.layers.split_at_mut(first);
        let input = run((before, Some(0)), ctx, input, None)?;
        let (output, kept) = forward((trained, Some(first)), ctx, input)?;
        output.mark_ready()?;
        Ok((output, kept))
    }

    fn backward_input(&mut self, saved: Kept, grad: Tensor) -> Result<(Option<Tensor>, Kept)> {
        let (input_grad, pending) = backward_input(self.trained(), saved, grad)?;
        Ok((self.given_back(input_grad)?, pending))
    }

    fn backward_weight(&mut self, pending: Kept) -> Result<()> {
        backward_weight(self.trained(), pending)
    }

    fn backward(&mut self, saved: Kept, grad: Tensor) -> Result<Option<Tensor>> {
        let input_grad = backward(self.trained(), saved, grad)?;
        self.given_back(input_grad)
    }

    fn forward_again(&mut self, ctx: ForwardContext, input: Tensor) -> Result<Kept> {
        let first = self.first_trained;
        let (before, trained) = self.layers.split_at_mut(first);
        let input = run((before, Some(0)), ctx, input, None)?;
        forward_again((trained, Some(first)), ctx, input)
    }

    fn forward_next(&mut self, past: usize, input: Tensor) -> Result<Tensor> {
        let output = forward_next((&mut self.layers, Some(0)), past, input)?;
        output.mark_ready()?;
        Ok(output)
    }

    /// The last layer must compute every row alone, as the head of a model does: it runs for the last token
    /// only.
    fn next_scores(&mut self, past: usize, input: Tensor) -> Result<Vec<f32>> {
        let tokens = input.shape().rows();
        let scores = match self.layers.split_last_mut() {
            Some((head, layers)) => {
                let index = layers.len();
                let last = last_row(forward_next((layers, Some(0)), past, input)?)?;
                current::begin(Some(0), index);
                let scores = head.forward_next(past + tokens - 1, last);
                scores.map_err(|error| error.at(head.name()))?
            }
            None => last_row(input)?,
        };
        Ok(scores.to(Place::default())?.f32().to_vec())
    }

    fn recompute_interiors(&mut self) {
        self.layers
            .iter_mut()
            .for_each(|layer| layer.recompute_interior());
    }

    fn layer_names(&self) -> Vec<String> {
        self.layers.iter().map(|layer| layer.name().to_owned()).collect()
    }

    fn parameter_layers(&mut self) -> Vec<String> {
        let mut names = Vec::new();
        for layer in &mut self.layers {
            let count = layer.parameters().len();
            names.extend(std::iter::repeat_n(layer.name().to_owned(), count));
        }
        names
    }

    fn visit_parameters<'a>(&'a mut self, visit: &mut dyn FnMut(&'a mut Parameter)) {
        visit_parameters(&mut self.layers, visit);
    }

    fn visit_gradients<'a>(&'a mut self, visit: &mut dyn FnMut(&'a mut Parameter)) {
        visit_gradients(&mut self.layers, visit);
    }
}

/// The shape of the last layer's output.
pub(crate) fn output_shape(layers: &[Box<dyn Layer>], input: &Shape) -> Result<Shape> {
    layers.iter().try_fold(*input, |shape, layer| {
        layer.output_shape(&shape).map_err(|error| error.at(layer.name()))
    })
}

/// Runs forward of all layers. In evaluation nothing is kept.
pub(crate) fn forward(chain: Chain<'_>, ctx: ForwardContext, input: Tensor) -> Result<(Tensor, Kept)> {
    let mut kept = List::with_room(chain.0.len());
    let output = run(chain, ctx, input, Some(&mut kept))?;
    Ok((output, Kept::listed(ctx, kept)))
}

/// Runs forward of all layers, and adds what they keep to the list, if there is one.
fn run(
    (layers, first): Chain<'_>,
    ctx: ForwardContext,
    input: Tensor,
    mut kept: Option<&mut List>,
) -> Result<Tensor> {
    let mut tensor = input;
    for (index, layer) in layers.iter_mut().enumerate() {
        current::begin(first, index);
        let shape = *tensor.shape();
        let (output, saved) = layer
            .forward(ctx, tensor)
            .map_err(|error| error.at(layer.name()))?;
        if ctx.mode == Mode::Probe {
            probe(layer.as_mut(), &output).map_err(|error| error.at(layer.name()))?;
        }
        if let Some(kept) = kept.as_mut().filter(|_| ctx.mode != Mode::Evaluate) {
            kept.push_of(shape, saved);
        }
        tensor = output;
    }
    Ok(tensor)
}

/// Computes again what all layers keep. Layers at the end whose kept tensors need no input are not run.
pub(crate) fn forward_again((layers, first): Chain<'_>, ctx: ForwardContext, input: Tensor) -> Result<Kept> {
    let mut kept = List::with_room(layers.len());
    let rest = layers
        .iter()
        .rposition(|layer| layer.kept_without_input(ctx).is_none())
        .map_or(0, |last| last + 1);
    let (layers, tail) = layers.split_at_mut(rest);
    let mut shape = *input.shape();
    if let Some((last, before)) = layers.split_last_mut() {
        let index = before.len();
        let tensor = run((before, first), ctx, input, Some(&mut kept))?;
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
        shape = layer
            .output_shape(&shape)
            .map_err(|error| error.at(layer.name()))?;
    }
    Ok(Kept::listed(ctx, kept))
}

/// Fails when a layer's parameter or output is not finite.
fn probe(layer: &mut dyn Layer, output: &Tensor) -> Result<()> {
    let finite = |numbers: &[f32]| numbers.iter().all(|number| number.is_finite());
    for parameter in layer.parameters() {
        parameter.fetch(Part::Value)?;
        if !finite(&parameter.value) {
            let name = parameter.name().to_owned();
            return Err(ValueError::Parameter { name }.into());
        }
    }
    if output.shape().kind() == Kind::F32 && !finite(output.clone().to(Place::default())?.f32()) {
        return Err(ValueError::Output.into());
    }
    Ok(())
}

/// A layer's backward-input. Fails if the input gradient's shape is not the input's.
#[inline]
fn checked_backward_input(
    layer: &mut dyn Layer,
    entry: Entry,
    grad: Tensor,
) -> Result<(Option<Tensor>, Kept)> {
    let (input_grad, pending) = layer.backward_input(entry.kept, grad)?;
    if let (Some(grad), Some(expected)) = (&input_grad, entry.input)
        && expected.kind() == Kind::F32
        && *grad.shape() != expected
    {
        let got = *grad.shape();
        return Err(ShapeError::InputGradient { expected, got }.into());
    }
    Ok((input_grad, pending))
}

/// Runs backward-input of all layers, last first. It stops at a layer whose input has no gradient, because
/// the layers before it get none.
pub(crate) fn backward_input(
    (layers, first): Chain<'_>,
    mut saved: Kept,
    grad: Tensor,
) -> Result<(Option<Tensor>, Kept)> {
    let mut pending = List::with_room(layers.len());
    let mut grad = Some(grad);
    for ((index, layer), entry) in layers.iter_mut().enumerate().zip(saved.take_entries()).rev() {
        let Some(output_grad) = grad else { break };
        current::begin(first, index);
        let (input_grad, weight) = checked_backward_input(layer.as_mut(), entry, output_grad)
            .map_err(|error| error.at(layer.name()))?;
        pending.push(weight);
        grad = input_grad;
    }
    Ok((grad, Kept::listed(saved.ctx, pending)))
}

/// Runs backward-weight of the layers that backward-input reached, last first.
pub(crate) fn backward_weight((layers, first): Chain<'_>, mut pending: Kept) -> Result<()> {
    for ((index, layer), kept) in layers.iter_mut().enumerate().rev().zip(pending.take_inner()) {
        current::begin(first, index);
        layer
            .backward_weight(kept)
            .map_err(|error| error.at(layer.name()))?;
    }
    Ok(())
}

/// Runs backward of all layers, last first. Each layer's weight gradients follow its input gradient at once,
/// so what they need is freed early.
fn backward((layers, first): Chain<'_>, mut saved: Kept, grad: Tensor) -> Result<Option<Tensor>> {
    let mut grad = Some(grad);
    for ((index, layer), entry) in layers.iter_mut().enumerate().zip(saved.take_entries()).rev() {
        let Some(output_grad) = grad else { break };
        current::begin(first, index);
        let both =
            checked_backward_input(layer.as_mut(), entry, output_grad).and_then(|(input_grad, pending)| {
                layer.backward_weight(pending)?;
                Ok(input_grad)
            });
        grad = both.map_err(|error| error.at(layer.name()))?;
    }
    Ok(grad)
}

/// Visits all layers' parameters, in order.
pub(crate) fn visit_parameters<'a>(
    layers: &'a mut [Box<dyn Layer>],
    visit: &mut dyn FnMut(&'a mut Parameter),
) {
    layers.iter_mut().for_each(|layer| layer.visit_parameters(visit));
}

/// Visits all layers' parameters, in order, and drops no cache.
pub(crate) fn visit_gradients<'a>(
    layers: &'a mut [Box<dyn Layer>],
    visit: &mut dyn FnMut(&'a mut Parameter),
) {
    layers.iter_mut().for_each(|layer| layer.visit_gradients(visit));
}
