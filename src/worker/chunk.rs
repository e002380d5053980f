//! One of a rank's stages, with its micro-batches in flight.

use std::ops::Range;

use pipewright_stages::{Bytes, Offloaded, Parameter, Shape, Stage, Tensor, Together};

use super::partials::{Partials, visit};
use super::strategy::{Slices, Span};
use crate::error::Result;
use crate::id::StageId;

/// A stage and what it holds for each micro-batch of the step.
pub(super) struct Chunk<S: Stage> {
    pub(super) id: StageId,
    pub(super) stage: S,
    pub(super) cells: Vec<InFlight<S>>,
    /// Of the parameters whose gradients are added in backward.
    pub(super) partials: Partials,
    /// Of the parameters of a deferred head, whose gradients are added right before the other ones.
    pub(super) deferred: Partials,
    /// Which replica owns which numbers of its parameters.
    pub(super) slices: Slices,
    /// Whether its gradients have all their numbers now, or only those that this replica owns.
    pub(super) has_whole_gradients: bool,
}

/// What a stage holds for one micro-batch.
pub(super) struct InFlight<S: Stage> {
    /// From the stage before on the same rank.
    pub(super) input: Option<S::Wire>,
    /// For the next stage, until it is sent.
    pub(super) output: Option<S::Wire>,
    pub(super) saved: Option<Counted<S::Saved>>,
    /// The part of `saved` that is on the host, or on its way there or back.
    pub(super) away: Option<Offloaded>,
    /// The shape of the forward pass's input, if it is a tensor. Its gradient must have the same shape.
    pub(super) input_shape: Option<Shape>,
    /// The input of a deferred head, and the target.
    pub(super) before_head: Option<(S::Wire, Tensor)>,
    /// The output's gradient, from the loss or from the next stage on the same rank.
    pub(super) grad: Option<S::Wire>,
    /// For the stage before, until it is sent.
    pub(super) input_grad: Option<S::Wire>,
    pub(super) pending: Option<Counted<S::Pending>>,
}

/// A kept value and its size when it was kept.
pub(super) struct Counted<T> {
    pub(super) value: T,
    pub(super) bytes: u64,
}

impl<T: Bytes> Counted<T> {
    pub(super) fn new(value: T) -> Self {
        Self { bytes: value.bytes(), value }
    }
}

impl<S: Stage> Default for InFlight<S> {
    fn default() -> Self {
        Self {
            input: None,
            output: None,
            saved: None,
            away: None,
            input_shape: None,
            before_head: None,
            grad: None,
            input_grad: None,
            pending: None,
        }
    }
}

impl<S: Stage> Chunk<S> {
    pub(super) fn new(id: StageId, stage: S, micro_batches: u32, short_sums: bool) -> Self {
        let cells = (0..micro_batches).map(|_| InFlight::default()).collect();
        let [partials, deferred] = [0..usize::MAX, 0..0].map(|places| Partials::of(places, short_sums));
        Self { id, stage, cells, partials, deferred, slices: Slices::default(), has_whole_gradients: true }
    }

    /// The last stage defers its head, if it can, for micro-batches of up to this many rows.
    pub(super) fn defer_head(&mut self, rows: usize, short_sums: bool) {
        let count = self.stage.defer_head(rows);
        let mut all = 0;
        self.stage.visit_gradients(&mut |_| all += 1);
        let first = all - count;
        [self.partials, self.deferred] =
            [0..first, first..all].map(|places| Partials::of(places, short_sums));
    }

    /// Forgets the sums of gradient groups that wait.
    pub(super) fn forget_sums(&mut self) {
        self.partials.clear(&mut self.stage);
        self.deferred.clear(&mut self.stage);
    }

    /// Appends numbers of one of the replica's sums, by its place among them.
    pub(super) fn append_sums(&mut self, node: usize, spans: &[Span], block: &mut Vec<u8>) -> Result<()> {
        visit_spans(&mut self.stage, spans, |parameter, range| Ok(parameter.append_sum(node, range, block)?))
    }

    /// Adds numbers of one of the replica's sums to those in `block`. Returns true if it was the
    /// replica's last sum. That sum is in the gradients, so the gradients then hold the result.
    pub(super) fn add_sums(&mut self, node: usize, spans: &[Span], mut block: &mut [u8]) -> Result<bool> {
        let mut is_set = false;
        visit_spans(&mut self.stage, spans, |parameter, range| {
            let (numbers, rest) = std::mem::take(&mut block).split_at_mut(range.len() * size_of::<f32>());
            block = rest;
            is_set = parameter.add_sum(node, range.start, numbers)?;
            Ok(())
        })?;
        Ok(is_set)
    }

    /// Sets these numbers of the gradients.
    pub(super) fn set_gradients(&mut self, spans: &[Span], mut block: &[u8]) -> Result<()> {
        visit_spans(&mut self.stage, spans, |parameter, range| {
            let (numbers, rest) = block.split_at(range.len() * size_of::<f32>());
            block = rest;
            Ok(parameter.set_grad(range.start, numbers)?)
        })
    }

    /// Appends the weights of an owner's bucket. If it has no such bucket, that is nothing.
    pub(super) fn append_weights(&mut self, owner: u32, bucket: usize, block: &mut Vec<u8>) -> Result<()> {
        let spans = self.slices.bucket(owner, bucket);
        visit_spans(&mut self.stage, spans, |parameter, range| Ok(parameter.append_value(range, block)?))
    }

    /// Sets these weights, after the stage's own update: it has dropped what it computed from old ones.
    pub(super) fn set_weights(&mut self, owner: u32, bucket: usize, mut block: &[u8]) -> Result<()> {
        let spans = self.slices.bucket(owner, bucket);
        visit_spans(&mut self.stage, spans, |parameter, range| {
            let (numbers, rest) = block.split_at(range.len() * size_of::<f32>());
            block = rest;
            Ok(parameter.set_value(range.start, numbers)?)
        })
    }

    /// Sets the gradients to zero. What the stage has computed from the weights so far is dropped.
    pub(super) fn discard_gradients(&mut self, together: &mut Together) -> Result<()> {
        Ok(together.visit(&mut self.stage, Parameter::start_sum)?)
    }

    /// One parameter by its place in the stage.
    pub(super) fn parameter(&mut self, index: usize) -> &mut Parameter {
        let mut indices = 0..;
        let mut found = None;
        self.stage.visit_parameters(&mut |parameter| {
            if indices.next() == Some(index) {
                found = Some(parameter);
            }
        });
        found.expect("the index is of a parameter that the stage has shown")
    }
}

/// Calls `act` with each span of these parameters, in order.
pub(super) fn visit_spans<S: Stage>(
    stage: &mut S,
    spans: &[Span],
    mut act: impl FnMut(&mut Parameter, Range<usize>) -> Result<()>,
) -> Result<()> {
    let mut rest = spans.iter().peekable();
    visit(stage, |index, parameter| {
        while let Some((_, range)) = rest.next_if(|(of, _)| *of == index) {
            act(parameter, range.clone())?;
        }
        Ok(())
    })
}

/// An empty block. It has the memory of one that has been read, if there is one.
pub(super) fn empty_block(blocks: &mut Vec<Vec<u8>>) -> Vec<u8> {
    let mut block = blocks.pop().unwrap_or_default();
    block.clear();
    block
}

/// A stage of this rank.
pub(super) fn chunk_of<S: Stage>(chunks: &mut [Chunk<S>], stage: StageId) -> &mut Chunk<S> {
    let chunk = chunks.iter_mut().find(|chunk| chunk.id == stage);
    chunk.expect("checked: the stage is on this rank")
}
