//! One of a rank's stages, with its micro-batches in flight.

use pipewright_stages::{Bytes, Parameter, Shape, Stage};

use crate::id::StageId;

/// A stage and what it holds for each micro-batch of the step.
pub(super) struct Chunk<S: Stage> {
    pub(super) id: StageId,
    pub(super) stage: S,
    pub(super) cells: Vec<InFlight<S>>,
}

/// What a stage holds for one micro-batch.
pub(super) struct InFlight<S: Stage> {
    /// From the stage before on the same rank.
    pub(super) input: Option<S::Wire>,
    /// For the next stage, until it is sent.
    pub(super) output: Option<S::Wire>,
    pub(super) saved: Option<Held<S::Saved>>,
    /// The shape of the forward pass's input, if it is a tensor. Its gradient must have the same shape.
    pub(super) input_shape: Option<Shape>,
    /// The output's gradient, from the loss or from the next stage on the same rank.
    pub(super) grad: Option<S::Wire>,
    /// For the stage before, until it is sent.
    pub(super) input_grad: Option<S::Wire>,
    pub(super) pending: Option<Held<S::Pending>>,
}

/// A kept value and its size when it was kept.
pub(super) struct Held<T> {
    pub(super) value: T,
    pub(super) bytes: u64,
}

impl<T: Bytes> Held<T> {
    pub(super) fn new(value: T) -> Self {
        Self {
            bytes: value.bytes(),
            value,
        }
    }
}

impl<S: Stage> Default for InFlight<S> {
    fn default() -> Self {
        Self {
            input: None,
            output: None,
            saved: None,
            input_shape: None,
            grad: None,
            input_grad: None,
            pending: None,
        }
    }
}

impl<S: Stage> Chunk<S> {
    pub(super) fn new(id: StageId, stage: S, micro_batches: u32) -> Self {
        let cells = (0..micro_batches).map(|_| InFlight::default()).collect();
        Self { id, stage, cells }
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
