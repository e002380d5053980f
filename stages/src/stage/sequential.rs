//! The stage that is a chain of layers.

use std::rc::Rc;

use crate::cpu::real::in_format;
use crate::cuda::{self, Gpu};
use crate::device::{DType, Device, Place};
use crate::error::Result;
use crate::loss::MicroBatchLoss;
use crate::parameter::Parameter;
use crate::parameter::packed::Packed;
use crate::shape::Shape;
use crate::shards::tree::add_by_tree;
use crate::shards::{Division, Team};
use crate::stage::borders::Borders;
use crate::stage::chain::Chain;
use crate::stage::clock::{Clock, clock};
use crate::stage::kept::Kept;
use crate::stage::layer::{ChooseLora, Layer, check_place};
use crate::stage::recompute::Recompute;
use crate::stage::{ForwardContext, Stage};
use crate::tensor::wires::{WireFormat, check_blocks};
use crate::tensor::{Bytes, Tensor};

/// A [`Stage`] that runs layers one after the other.
#[derive(Debug)]
pub struct Sequential {
    chain: Chain,
    place: Place,
    /// The shards, if there are several.
    team: Option<Team>,
    /// The format of wires to other processes.
    wires: WireFormat,
}

impl Sequential {
    /// A stage of these layers, on the CPU.
    pub fn new(layers: Vec<Box<dyn Layer>>) -> Self {
        Self {
            chain: Chain::of_stage(layers),
            place: Place::default(),
            team: None,
            wires: WireFormat::default(),
        }
    }

    /// The same stage, which sends other processes wires in this format. For weights that do not depend on
    /// where the model is cut, its units must round to it: see
    /// [`Model::with_wires`](crate::models::Model::with_wires).
    #[must_use]
    pub fn with_wires(self, wires: WireFormat) -> Self {
        Self { wires, ..self }
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
        for layer in &mut self.chain.layers {
            let mut parameters = layer.parameters().into_iter();
            parameters.try_for_each(&mut read)?;
            layer.hold_in_bf16();
        }
        Ok(())
    }

    /// Says that nobody uses the stage's input gradient. For the first stage of a model, after it is known
    /// which parameters are frozen: layers before the first one that is trained run forward only.
    pub fn drop_input_gradient(&mut self) {
        self.chain.drop_input_gradient();
    }

    /// As [`Layer::splits_backward`], of any layer.
    pub fn splits_backward(&mut self) -> bool {
        self.chain.splits_backward()
    }

    /// As [`Layer::adapt`], for all layers.
    ///
    /// # Errors
    /// When there can be no such adapter.
    pub fn adapt(&mut self, choose: &mut ChooseLora<'_>) -> Result<()> {
        self.chain.adapt(choose)
    }

    /// As [`Layer::merge_adapters`], for all layers.
    pub fn merge_adapters(&mut self) {
        self.chain.merge_adapters();
    }
}

/// A stage's input gradient, for another thread to use.
fn given_back(input_grad: Option<Tensor>) -> Result<Option<Tensor>> {
    input_grad.as_ref().map_or(Ok(()), Tensor::mark_ready)?;
    Ok(input_grad)
}

impl Stage for Sequential {
    type Wire = Tensor;
    type Saved = Kept;
    type Pending = Kept;

    fn output_shape(&self, input: &Shape) -> Result<Shape> {
        self.chain.output_shape(input)
    }

    fn load(&mut self, input: Tensor) -> Result<Tensor> {
        input.to(self.place)
    }

    fn join(&mut self, team: &Team) -> Result<()> {
        self.team = Some(team.clone());
        self.chain.join(team)
    }

    fn keep_apart(&mut self, borders: &Borders) -> Result<()> {
        self.chain.keep_apart(borders)
    }

    fn divided_output(&self) -> Option<&Division> {
        self.chain.layers.last()?.divided_output()
    }

    fn sum_rows(&mut self) -> Result<()> {
        let Some(team) = self.team.clone() else {
            return Ok(());
        };
        let mut count = 0;
        self.visit_gradients(&mut |parameter| count += parameter.rows_to_sum());
        if count == 0 {
            return Ok(());
        }
        let mut own = match self.gpu()? {
            Some(gpu) => Tensor::on_gpu(&gpu, DType::F32, &[1, count])?,
            None => Tensor::on_host(&[1, count])?,
        };
        let (mut start, mut given) = (0, Ok(()));
        self.visit_gradients(&mut |parameter| {
            if given.is_ok() {
                given = parameter.give_rows(&mut own, start);
            }
            start += parameter.rows_to_sum();
        });
        given?;
        let mut all = team.all(own, |_| [1, count])?;
        add_by_tree(&mut all)?;
        let (mut start, mut taken) = (0, Ok(()));
        self.visit_gradients(&mut |parameter| {
            if taken.is_ok() {
                taken = parameter.take_rows(&all[0], start);
            }
            start += parameter.rows_to_sum();
        });
        taken
    }

    fn move_to(&mut self, place: Place) -> Result<()> {
        cuda::check(place)?;
        if self.wires == WireFormat::Blocks {
            check_blocks(place)?;
        }
        let mut layers = self.chain.layers.iter();
        layers.try_for_each(|layer| check_place(layer.as_ref(), place))?;
        self.place = place;
        self.try_visit_parameters(&mut |parameter| {
            parameter.move_to(place).map_err(|error| error.at(parameter.name()))
        })
    }

    fn narrow(&self, wire: Tensor) -> Result<Tensor> {
        wire.narrowed(self.wires)
    }

    fn widen(&self, wire: Tensor) -> Result<Tensor> {
        wire.widened(self.wires)
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
        let (output, kept) = self.chain.forward(ctx, input, None)?;
        output.mark_ready()?;
        Ok((output, kept))
    }

    fn defer_head(&mut self, rows: usize) -> usize {
        self.chain.defer_head(rows)
    }

    fn forward_before_head(&mut self, ctx: ForwardContext, input: Tensor) -> Result<(Tensor, Kept)> {
        self.chain.forward_before_head(ctx, input)
    }

    fn head_and_loss(
        &mut self,
        ctx: ForwardContext,
        input: Tensor,
        loss: &mut MicroBatchLoss<'_, Tensor>,
    ) -> Result<Option<Tensor>> {
        self.chain.head_and_loss(ctx, input, loss)
    }

    fn backward_input(&mut self, saved: Kept, grad: Tensor) -> Result<(Option<Tensor>, Kept)> {
        let (input_grad, pending) = self.chain.backward_input(saved, grad, None)?;
        Ok((given_back(input_grad)?, pending))
    }

    fn backward_weight(&mut self, pending: Kept) -> Result<()> {
        self.chain.backward_weight(pending)
    }

    fn backward(&mut self, saved: Kept, grad: Tensor) -> Result<Option<Tensor>> {
        given_back(self.chain.backward(saved, grad)?)
    }

    fn forward_again(&mut self, ctx: ForwardContext, input: Tensor) -> Result<Kept> {
        self.chain.forward_again(ctx, input)
    }

    fn forward_next(&mut self, past: usize, input: Tensor) -> Result<Tensor> {
        let output = self.chain.forward_next(past, input)?;
        output.mark_ready()?;
        Ok(output)
    }

    /// The last layer must compute every row alone, as the head of a model does: it runs for the last token
    /// only. With several shards these are the scores of this shard's tokens.
    fn next_scores(&mut self, past: usize, input: Tensor) -> Result<Vec<f32>> {
        let team = self.team.clone();
        let tokens = team.as_ref().map_or(input.shape().rows(), Team::rows);
        let before = self.chain.forward_next_but_last(past, input)?;
        let last = match &team {
            None => last_row(before)?,
            Some(team) => {
                let last = last_row(team.gather(&before)?)?;
                team.set_rows(&[1, 1]);
                team.own_part(&last)?
            }
        };
        let scores = self.chain.last_forward_next(past + tokens - 1, last)?;
        Ok(scores.to(Place::default())?.f32().to_vec())
    }

    fn recompute(&mut self, how: Recompute) {
        let layers = self.chain.layers.iter_mut();
        layers.for_each(|layer| layer.recompute(how));
    }

    fn layer_names(&self) -> Vec<String> {
        let layers = self.chain.layers.iter();
        layers.map(|layer| layer.name().to_owned()).collect()
    }

    fn parameter_layers(&mut self) -> Vec<String> {
        let mut names = Vec::new();
        for layer in &mut self.chain.layers {
            let count = layer.parameters().len();
            names.extend(std::iter::repeat_n(layer.name().to_owned(), count));
        }
        names
    }

    fn visit_parameters<'a>(&'a mut self, visit: &mut dyn FnMut(&'a mut Parameter)) {
        self.chain.visit_parameters(visit);
    }

    fn visit_gradients<'a>(&'a mut self, visit: &mut dyn FnMut(&'a mut Parameter)) {
        self.chain.visit_gradients(visit);
    }
}

/// The last row of numbers, `[1, 1, width]`.
fn last_row(rows: Tensor) -> Result<Tensor> {
    if rows.shape().rows() == 1 {
        return Ok(rows);
    }
    let width = rows.shape().last();
    let mut last = rows.beside(&[1, 1, width])?;
    if let Some(gpu) = rows.gpu()? {
        let bytes = last.bytes() as usize;
        gpu.copy(last.at(), rows.at().offset(rows.bytes() as usize - bytes), bytes)?;
        return Ok(last);
    }
    in_format!(rows.dtype(), N => {
        let numbers = rows.numbers::<N>();
        last.numbers_mut::<N>().copy_from_slice(&numbers[numbers.len() - width..]);
    });
    Ok(last)
}
