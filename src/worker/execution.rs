//! What a rank runs: a training step, forward passes alone, or the next tokens of a text.

use std::time::Instant;

use pipewright_stages::loss::Score;
use pipewright_stages::{ForwardContext, Mode, Tensor};

use super::finish::agreement::{Ending, StepOutcome};
use crate::data::DataSource;
use crate::error::{Finding, Result};
use crate::fabric::Call;
use crate::id::MicroBatch;
use crate::schedule::{Action, Cell};

/// What a rank is told of a step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StepRequest {
    /// The call that the step begins, unless weights may be stale: then it goes on with the call of an
    /// earlier step.
    pub(crate) call: Call,
    /// The step, from 0.
    pub(crate) step: u64,
    /// Its learning rate.
    pub(crate) learning_rate: f64,
    /// The instant from which a trace counts. `None`: no trace.
    pub(crate) trace_from: Option<Instant>,
    /// Whether to ask all ranks to end.
    pub(crate) asks: bool,
    /// Whether the next step follows without any other call between them. Then this one ends before all ranks
    /// agree on it.
    pub(crate) goes_on: bool,
}

/// Tokens that follow others of the same text.
#[derive(Debug)]
pub(crate) struct NextTokens {
    /// How many tokens come before them.
    pub(crate) past: usize,
    /// The tokens.
    pub(crate) tokens: Vec<u32>,
}

impl NextTokens {
    /// The first stage's input: ids `[1, tokens]`.
    pub(super) fn input(&self) -> Result<Tensor> {
        Ok(Tensor::from_ids(&[1, self.tokens.len()], self.tokens.clone())?)
    }
}

/// One run of a schedule, and its results so far.
pub(super) struct Execution<'a> {
    /// Training, or forward passes alone: an evaluation, or a search for a number that is not finite.
    pub(super) mode: Mode,
    pub(super) step: u64,
    /// For a training step.
    pub(super) learning_rate: f64,
    /// The number, in the data, of the schedule's first micro-batch.
    pub(super) first: u32,
    /// Where micro-batches come from. `None`: from the loader.
    pub(super) source: Option<&'a dyn DataSource>,
    /// How the step has to end, if the ranks have agreed on that already.
    pub(super) known: Option<StepOutcome>,
    /// Whether it ends before the ranks agree.
    pub(super) goes_on: bool,
    /// How the rank ends it. `None`: it has not.
    pub(super) ending: Option<Ending>,
    /// How the step ended, once the ranks have agreed.
    pub(super) outcome: Option<StepOutcome>,
    /// How many losses this rank has of the step.
    pub(super) losses: usize,
    /// How many passes have begun, and how many moves to the host and back are done.
    pub(super) passes: usize,
    pub(super) moved: usize,
    /// How many of the rank's stages have had their step.
    pub(super) stepped: usize,
    /// Whether this rank asks all to end. Only for weights that may be stale.
    pub(super) asks: bool,
    /// Whether a rank asked all to end, in the step of the outcome.
    pub(super) asked: bool,
    /// The scores of an evaluation's micro-batches, on the rank of the last stage.
    pub(super) scores: Vec<Score>,
    /// In a search: what this rank found.
    pub(super) finding: Option<Finding>,
    /// The tokens, if text is written.
    pub(super) next: Option<&'a NextTokens>,
    /// The scores of what may follow them, on the rank of the last stage.
    pub(super) next_scores: Vec<f32>,
}

impl<'a> Execution<'a> {
    /// A training step. `first`: the number, in the batch, of the schedule's first micro-batch. `source`:
    /// where micro-batches come from, if not from the loader.
    pub(super) fn training(request: &StepRequest, first: u32, source: Option<&'a dyn DataSource>) -> Self {
        Self {
            learning_rate: request.learning_rate,
            asks: request.asks,
            goes_on: request.goes_on,
            first,
            ..Self::new(Mode::Train, request.step, source)
        }
    }

    /// Forward passes over the micro-batches of a source's step 0.
    pub(super) fn evaluation(source: &'a dyn DataSource) -> Self {
        Self::new(Mode::Evaluate, 0, Some(source))
    }

    /// The forward pass of one training micro-batch. It ends at the first number that is not finite.
    pub(super) fn search(source: &'a dyn DataSource, step: u64, micro_batch: MicroBatch) -> Self {
        Self { first: micro_batch.0, ..Self::new(Mode::Probe, step, Some(source)) }
    }

    /// The next tokens of a text.
    pub(super) fn next(next: &'a NextTokens) -> Self {
        Self { next: Some(next), ..Self::new(Mode::Evaluate, 0, None) }
    }

    fn new(mode: Mode, step: u64, source: Option<&'a dyn DataSource>) -> Self {
        Self {
            mode,
            step,
            learning_rate: 0.0,
            first: 0,
            source,
            known: None,
            goes_on: false,
            ending: None,
            outcome: None,
            losses: 0,
            passes: 0,
            moved: 0,
            stepped: 0,
            asks: false,
            asked: false,
            scores: Vec::new(),
            finding: None,
            next: None,
            next_scores: Vec::new(),
        }
    }

    /// Whether a wire may be missing, because an earlier stage failed.
    pub(super) fn is_search(&self) -> bool {
        self.mode == Mode::Probe
    }

    /// The number, in the data, of a cell's micro-batch.
    pub(super) fn micro_batch(&self, cell: Cell) -> MicroBatch {
        MicroBatch(self.first + cell.micro_batch.0)
    }

    /// The cell with the number that its micro-batch has in the data.
    pub(super) fn in_batch(&self, cell: Cell) -> Cell {
        Cell { micro_batch: self.micro_batch(cell), ..cell }
    }

    pub(super) fn context(&self, cell: Cell) -> ForwardContext {
        ForwardContext { step: self.step, micro_batch: self.micro_batch(cell).0, mode: self.mode }
    }

    /// The cell's input and target from the source, or `None` where the loader provides them.
    pub(super) fn fetch(&self, cell: Cell) -> Option<Result<(Tensor, Tensor)>> {
        self.source.map(|source| source.micro_batch(self.step, self.micro_batch(cell)))
    }

    /// The action for messages: its micro-batch has the number that it has in the data.
    pub(super) fn shown(&self, action: Action) -> Action {
        match action {
            Action::Compute(pass, cell) => Action::Compute(pass, self.in_batch(cell)),
            Action::Send(flow, cell) => Action::Send(flow, self.in_batch(cell)),
            Action::Recv(flow, cell) => Action::Recv(flow, self.in_batch(cell)),
            other => other,
        }
    }
}
