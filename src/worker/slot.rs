//! One stage on its rank, with what is in flight through it.

use pipewright_stages::{Bytes, Parameter, Stage};

use crate::id::StageId;

/// A stage and, for each micro-batch of the step, what it holds of it.
pub(super) struct Slot<S: Stage> {
    pub(super) id: StageId,
    pub(super) stage: S,
    pub(super) cells: Vec<InFlight<S>>,
    /// In a forward-only run, what the stage before on the same rank has just given.
    pub(super) handed: Option<S::Wire>,
    /// Micro-batches whose backward-weight has run: they accumulate in micro-batch order whatever the schedule's order.
    pub(super) accumulated: usize,
}

/// What a stage holds of one micro-batch.
pub(super) struct InFlight<S: Stage> {
    /// From the stage before on the same rank.
    pub(super) input: Option<S::Wire>,
    /// For the next stage, until it is sent.
    pub(super) output: Option<S::Wire>,
    pub(super) saved: Option<Held<S::Saved>>,
    /// The output's gradient, from the loss or from the next stage on the same rank.
    pub(super) grad: Option<S::Wire>,
    /// For the stage before, until it is sent.
    pub(super) input_grad: Option<S::Wire>,
    pub(super) pending: Option<Held<S::Pending>>,
    /// The schedule has called for backward-weight.
    pub(super) due: bool,
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
            grad: None,
            input_grad: None,
            pending: None,
            due: false,
        }
    }
}

impl<S: Stage> Slot<S> {
    pub(super) fn new(id: StageId, stage: S, micro_batches: u32) -> Self {
        let cells = (0..micro_batches).map(|_| InFlight::default()).collect();
        Self {
            id,
            stage,
            cells,
            handed: None,
            accumulated: 0,
        }
    }

    /// Runs backward-weight for every micro-batch whose turn has come, in micro-batch order; gives the bytes set free.
    pub(super) fn accumulate(&mut self) -> pipewright_stages::Result<u64> {
        let mut freed = 0;
        while let Some(cell) = self.cells.get_mut(self.accumulated).filter(|cell| cell.due) {
            let pending = cell
                .pending
                .take()
                .expect("checked: backward-input before backward-weight");
            freed += pending.bytes;
            self.stage.backward_weight(pending.value)?;
            self.accumulated += 1;
        }
        Ok(freed)
    }

    /// Makes room for the next step.
    pub(super) fn clear(&mut self) {
        self.accumulated = 0;
        self.cells.iter_mut().for_each(|cell| cell.due = false);
    }

    /// One parameter by its place in the stage.
    pub(super) fn parameter(&mut self, index: usize) -> &mut Parameter {
        self.stage.parameters().swap_remove(index)
    }
}
