//! The last linear layer of a model: some rows at a time go forward, through the loss, and back.

use std::ops::Range;

use super::divided::Side;
use super::operands::Layout;
use super::{Between, Linear};
use crate::device::Device;
use crate::error::Result;
use crate::loss::MicroBatchLoss;
use crate::stage::layer::Layer;
use crate::stage::{ForwardContext, Mode};
use crate::tensor::Tensor;

/// How many rows of the output are in memory at once on the CPU. Weight gradients are added up in blocks of
/// as many rows, so they have the same bits as if all rows came at once.
pub(crate) const SCORES_AT_ONCE: usize = crate::cpu::depth::BLOCK_DEPTH;
/// How many rows of the scores of a micro-batch are in memory at once on a GPU, which needs more to be busy:
/// with fewer, it would wait for the memory of the weight gradients, which each part reads and writes.
pub(crate) const SCORES_ON_GPU: usize = 2048;

/// How many numbers a GPU reads at once.
const READ_AT_ONCE: usize = 8;

/// Whether a last layer of these sizes, for a micro-batch of this many rows, goes by rows: where the output
/// is larger than the input, and larger than what is in memory at once.
pub(crate) fn goes_by_rows([inputs, outputs]: [usize; 2], rows: usize) -> bool {
    rows > SCORES_AT_ONCE && outputs > inputs
}

impl Linear {
    /// As [`goes_by_rows`].
    pub(super) fn can_defer(&self, rows: usize) -> bool {
        let [inputs, here] = self.matrix.sizes();
        let outputs = match &self.divided {
            Some(divided) if divided.side == Side::Outputs => divided.division.of_whole().len(),
            Some(_) => return false,
            None => here,
        };
        goes_by_rows([inputs, outputs], rows)
    }

    /// How wide the rows of the output must be so that each begins at an address that a GPU reads fast.
    /// `None`: as wide as the output.
    fn wider_rows(&self) -> Option<usize> {
        let [_, outputs] = self.matrix.sizes();
        let is_plain = self.bias.is_none() && self.divided.is_none() && self.matrix.layout() == Layout::OutIn;
        (is_plain && !outputs.is_multiple_of(READ_AT_ONCE)).then(|| outputs.next_multiple_of(READ_AT_ONCE))
    }

    /// Takes all rows of the input through the layer and the loss, and back. Gives the input gradient, in
    /// training; an empty one, if nobody uses it.
    pub(super) fn run_by_rows(
        &mut self,
        ctx: ForwardContext,
        input: &Tensor,
        loss: &mut MicroBatchLoss<'_, Tensor>,
    ) -> Result<Option<Tensor>> {
        let team = self.team_of(Side::Outputs).cloned();
        let input_shape = input.shape();
        let input = self.whole_input(input)?.into_owned();
        let all = input.shape().rows();
        let most = rows_at_once(input.place().device);
        loss.check(&self.output_shape(input_shape)?)?;
        let [_, columns] = self.matrix.sizes();
        let wider = self.wider_rows().filter(|_| loss.takes_wider_rows());
        // With several shards, each has a part of each number.
        let room = |width| match &team {
            Some(_) => input.f32_beside(input.shape().with_last(width).dims()),
            None => input.beside(input.shape().with_last(width).dims()),
        };
        let trains = ctx.mode != Mode::Evaluate;
        let mut input_grad =
            (trains && self.input_gradient).then(|| room(input.shape().last())).transpose()?;
        let ranks = self.adapters.iter().filter(|_| trains).map(|adapter| room(adapter.rank()));
        let mut inner_grads: Between = ranks.collect::<Result<_>>()?;
        let parts = || (0..all).step_by(most).map(|first| first..all.min(first + most));
        let wider = (wider, most.min(all));
        let looks_first = loss.looks_first();
        for range in parts().filter(|_| looks_first) {
            let (_, output, _) = self.scores(ctx, &input, range.clone(), wider)?;
            loss.look_at(range, [all, columns], output)?;
        }
        for range in parts() {
            let (rows, output, inners) = self.scores(ctx, &input, range.clone(), wider)?;
            let Some(grad) = loss.take_rows(range.clone(), [all, columns], output)? else { continue };
            if let Some(input_grad) = &mut input_grad {
                let some = match &team {
                    Some(_) => self.matrix.input_grad_part(&grad)?,
                    None => self.matrix.input_grad(&grad)?,
                };
                input_grad.put_rows(range.clone(), &some)?;
            }
            self.add_gradients(&rows, &grad, None, all)?;
            let adapters = self.adapters.iter_mut().zip(&inners);
            for ((adapter, inner), inner_grads) in adapters.zip(&mut inner_grads) {
                let some = adapter.backward_some(all, inner, &grad)?;
                inner_grads.put_rows(range.clone(), &some)?;
            }
        }
        if !trains {
            return Ok(None);
        }
        let mut input_grad = match (input_grad, &team) {
            (Some(sum), Some(team)) => Some(team.sum_in(input.dtype(), &sum, None)?),
            (input_grad, _) => input_grad,
        };
        for (adapter, inner_grad) in self.adapters.iter_mut().zip(inner_grads) {
            adapter.backward_rest(ctx, &input, inner_grad, input_grad.as_mut())?;
        }
        Ok(Some(input_grad.unwrap_or_else(|| input.without_rows())))
    }

    /// These rows of the input, their output, and what is between the matrices of adapters. `wider` is as in
    /// [`Linear::wider_rows`]; the output's memory is enough for `most` rows.
    fn scores(
        &mut self,
        ctx: ForwardContext,
        input: &Tensor,
        range: Range<usize>,
        (wider, most): (Option<usize>, usize),
    ) -> Result<(Tensor, Tensor, Between)> {
        let rows = input.rows(range.clone())?;
        let mut output = match (rows.gpu()?, wider) {
            (Some(gpu), Some(width)) => self.matrix.forward_wider(&gpu, &rows, [width, most])?,
            _ => self.matrix.forward_with_room(&rows, self.bias.as_ref(), most)?,
        };
        let adapters = self.adapters.iter_mut();
        let inners = adapters.map(|adapter| adapter.forward(ctx, range.start, &mut output, &rows));
        let inners = inners.collect::<Result<Between>>()?;
        Ok((rows, output, inners))
    }
}

/// How many rows of scores are in memory at once.
pub fn rows_at_once(device: Device) -> usize {
    match device {
        Device::Cpu => SCORES_AT_ONCE,
        Device::Cuda(_) => SCORES_ON_GPU,
    }
}
