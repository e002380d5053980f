//! The interpreter: runs one rank's actions over its stages and its transport.

mod finish;
mod forward_only;
mod meter;
mod parameters;
mod slot;
mod store;
mod verdict;

pub use meter::RankReport;
pub use parameters::{ParameterInfo, Site, Tie};
pub use verdict::{Fault, Outcome, Verdict};

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use pipewright_stages::loss::{Loss, Score};
use pipewright_stages::optimizer::Optimizer;
use pipewright_stages::{Mode, Moment, Shape, Stage, StageBuilder};

use crate::data::Feed;
use crate::error::{Error, Result};
use crate::id::{Rank, StageId};
use crate::schedule::{Action, Cell, Flow, Pass, Schedule};
use crate::transport::{Tag, Transport};
use meter::Meter;
use slot::{Held, InFlight, Slot};

/// Everything a rank's thread needs to make its worker. Stages are built there, since they need not be `Send`.
#[allow(missing_debug_implementations, reason = "holds builders, which are closures")]
pub struct WorkerParts<S: Stage> {
    /// The rank.
    pub rank: Rank,
    /// The whole pipeline's schedule.
    pub schedule: Arc<Schedule>,
    /// This rank's end of the links.
    pub transport: Box<dyn Transport<S::Wire> + Send>,
    /// This rank's stages.
    pub stages: Vec<(StageId, StageBuilder<S>)>,
    /// The loss, on the rank of the last stage.
    pub loss: Option<Box<dyn Loss<S::Wire>>>,
    /// Inputs, on the rank of the first stage.
    pub inputs: Option<Feed>,
    /// Targets, on the rank of the last stage.
    pub targets: Option<Feed>,
    /// How weights change.
    pub optimizer: Arc<dyn Optimizer>,
    /// The largest global gradient norm; a larger gradient is scaled down to it.
    pub clip: Option<f64>,
}

/// One rank of a pipeline.
pub struct Worker<S: Stage> {
    rank: Rank,
    schedule: Arc<Schedule>,
    transport: Box<dyn Transport<S::Wire> + Send>,
    slots: Vec<Slot<S>>,
    loss: Option<Box<dyn Loss<S::Wire>>>,
    scores: Vec<Score>,
    inputs: Option<Feed>,
    targets: Option<Feed>,
    optimizer: Arc<dyn Optimizer>,
    clip: Option<f64>,
    ties: Vec<Tie>,
    meter: Meter,
}

/// The step being run.
#[derive(Clone, Copy, Debug)]
struct Current {
    step: u64,
    learning_rate: f64,
}

impl<S: Stage> Worker<S> {
    /// Builds the stages of a rank.
    ///
    /// # Errors
    /// What a stage's builder reports.
    pub fn build(parts: WorkerParts<S>) -> Result<Self> {
        let micro_batches = parts.schedule.micro_batches();
        let slots = parts
            .stages
            .into_iter()
            .map(|(id, build)| Ok(Slot::new(id, build()?, micro_batches)))
            .collect::<Result<Vec<_>>>()?;
        Ok(Self {
            rank: parts.rank,
            schedule: parts.schedule,
            transport: parts.transport,
            slots,
            loss: parts.loss,
            scores: vec![Score::default(); micro_batches as usize],
            inputs: parts.inputs,
            targets: parts.targets,
            optimizer: parts.optimizer,
            clip: parts.clip,
            ties: Vec::new(),
            meter: Meter::default(),
        })
    }

    /// The shape one of its stages gives for an input shape.
    ///
    /// # Errors
    /// When the stage refuses the shape.
    pub fn output_shape(&mut self, stage: StageId, input: &Shape) -> Result<Shape> {
        Ok(self.slot(stage).stage.output_shape(input)?)
    }

    /// Whether the loss takes the last stage's output and the data's targets.
    ///
    /// # Errors
    /// When the loss refuses the shapes.
    pub fn check_loss(&mut self, output: &Shape, target: &Shape) -> Result<()> {
        Ok(self
            .loss
            .as_ref()
            .map_or(Ok(()), |loss| loss.check(output, target))?)
    }

    /// Runs one training step.
    ///
    /// # Errors
    /// [`Error::Action`] with the first action that failed or panicked.
    pub fn train(&mut self, step: u64, learning_rate: f64) -> Result<(Outcome, RankReport)> {
        self.meter.start();
        let current = Current { step, learning_rate };
        let mut outcome = None;
        let schedule = Arc::clone(&self.schedule);
        let actions = schedule.actions(self.rank).iter().copied();
        self.run(actions, |worker, action| {
            worker.perform(current, action, &mut outcome)
        })?;
        self.slots.iter_mut().for_each(Slot::clear);
        Ok((
            outcome.expect("lowering ends each rank with a step"),
            self.meter.report(),
        ))
    }

    /// Runs actions in order; a failure or panic is told with the action it happened in.
    fn run(
        &mut self,
        actions: impl Iterator<Item = Action>,
        mut perform: impl FnMut(&mut Self, Action) -> Result<()>,
    ) -> Result<()> {
        let rank = self.rank;
        for (index, action) in actions.enumerate() {
            catch_unwind(AssertUnwindSafe(|| perform(self, action)))
                .unwrap_or_else(|panic| Err(Error::Panicked(panic_message(panic.as_ref()))))
                .map_err(|error| error.at_action(rank, index, &action))?;
        }
        Ok(())
    }

    fn perform(&mut self, current: Current, action: Action, outcome: &mut Option<Outcome>) -> Result<()> {
        match action {
            Action::Compute(Pass::Forward, cell) => self.forward(current.step, cell),
            Action::Compute(Pass::BackwardInput, cell) => self.backward_input(cell),
            Action::Compute(Pass::BackwardWeight, cell) => self.backward_weight(cell),
            Action::Compute(Pass::Backward, cell) => {
                self.backward_input(cell)?;
                self.backward_weight(cell)
            }
            Action::Send(flow, cell) => self.send(flow, cell),
            Action::Recv(flow, cell) => {
                let (peer, tag) = self.source(flow, cell);
                self.transport.post_recv(peer, tag)
            }
            Action::Step(stage) => self.step(current, stage, outcome),
        }
    }

    fn forward(&mut self, step: u64, cell: Cell) -> Result<()> {
        let at = Moment {
            step,
            micro_batch: cell.micro_batch.0,
            mode: Mode::Train,
        };
        let input = self.input(step, cell)?;
        let (output, saved) = self.slot(cell.stage).stage.forward(at, input)?;
        let saved = Held::new(saved);
        self.meter.hold(saved.bytes);
        self.cell(cell).saved = Some(saved);
        if cell.stage == self.schedule.last_stage() {
            let targets = self
                .targets
                .as_mut()
                .expect("built: the last stage's rank has targets");
            let target = self.meter.wait(|| targets.take(step, cell.micro_batch))?;
            let loss = self
                .loss
                .as_mut()
                .expect("built: the last stage's rank has the loss");
            let (score, grad) = loss.forward(output, target)?;
            self.scores[cell.micro_batch.index()] = score;
            self.cell(cell).grad = Some(grad);
        } else if let Some(next) = self.neighbour(cell, 1) {
            next.input = Some(output);
        } else {
            self.cell(cell).output = Some(output);
        }
        Ok(())
    }

    /// The input of a forward pass: from the data, the stage before on this rank, or another rank.
    fn input(&mut self, step: u64, cell: Cell) -> Result<S::Wire> {
        if cell.stage == StageId(0) {
            let inputs = self
                .inputs
                .as_mut()
                .expect("built: the first stage's rank has inputs");
            let input = self.meter.wait(|| inputs.take(step, cell.micro_batch))?;
            return Ok(self.slot(cell.stage).stage.load(input)?);
        }
        match self.cell(cell).input.take() {
            Some(input) => Ok(input),
            None => self.wait(Flow::Activation, cell),
        }
    }

    fn backward_input(&mut self, cell: Cell) -> Result<()> {
        let grad = match self.cell(cell).grad.take() {
            Some(grad) => grad,
            None => self.wait(Flow::Gradient, cell)?,
        };
        let saved = self
            .cell(cell)
            .saved
            .take()
            .expect("checked: forward before backward-input");
        let freed = saved.bytes;
        let (input_grad, pending) = self.slot(cell.stage).stage.backward_input(saved.value, grad)?;
        let pending = Held::new(pending);
        self.meter.free(freed);
        self.meter.hold(pending.bytes);
        self.cell(cell).pending = Some(pending);
        if cell.stage == StageId(0) {
            return Ok(());
        }
        let input_grad = input_grad.ok_or_else(|| no_input_gradient(cell.stage))?;
        match self.neighbour(cell, -1) {
            Some(before) => before.grad = Some(input_grad),
            None => self.cell(cell).input_grad = Some(input_grad),
        }
        Ok(())
    }

    fn backward_weight(&mut self, cell: Cell) -> Result<()> {
        self.cell(cell).due = true;
        let freed = self.slot(cell.stage).accumulate()?;
        self.meter.free(freed);
        Ok(())
    }

    fn send(&mut self, flow: Flow, cell: Cell) -> Result<()> {
        let held = self.cell(cell);
        let (wire, peer_stage) = match flow {
            Flow::Activation => (held.output.take(), cell.stage.0 + 1),
            Flow::Gradient => (held.input_grad.take(), cell.stage.0 - 1),
        };
        let wire = wire.expect("checked: a pass before the send of its result");
        let peer = self.schedule.rank_of(StageId(peer_stage));
        self.transport
            .send(peer, tag(flow, cell.stage.0.max(peer_stage), cell), wire)
    }

    fn wait(&mut self, flow: Flow, cell: Cell) -> Result<S::Wire> {
        let (peer, tag) = self.source(flow, cell);
        let transport = &mut self.transport;
        self.meter.wait(|| transport.wait(peer, tag))
    }

    /// Where a stage's input or output gradient comes from.
    fn source(&self, flow: Flow, cell: Cell) -> (Rank, Tag) {
        let peer_stage = match flow {
            Flow::Activation => cell.stage.0 - 1,
            Flow::Gradient => cell.stage.0 + 1,
        };
        let peer = self.schedule.rank_of(StageId(peer_stage));
        (peer, tag(flow, cell.stage.0.max(peer_stage), cell))
    }

    fn slot(&mut self, stage: StageId) -> &mut Slot<S> {
        self.slots
            .iter_mut()
            .find(|slot| slot.id == stage)
            .expect("checked: the stage is on this rank")
    }

    fn cell(&mut self, cell: Cell) -> &mut InFlight<S> {
        &mut self.slot(cell.stage).cells[cell.micro_batch.index()]
    }

    /// The same micro-batch at the stage after (`1`) or before (`-1`), when this rank has that stage too.
    fn neighbour(&mut self, cell: Cell, offset: i32) -> Option<&mut InFlight<S>> {
        let stage = StageId(cell.stage.0.wrapping_add_signed(offset));
        let slot = self.slots.iter_mut().find(|slot| slot.id == stage)?;
        Some(&mut slot.cells[cell.micro_batch.index()])
    }
}

impl<S: Stage> std::fmt::Debug for Worker<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker")
            .field("rank", &self.rank)
            .finish_non_exhaustive()
    }
}

/// The tag of a wire: its direction, the later of the two stages it passes between, its micro-batch.
fn tag(flow: Flow, boundary: u32, cell: Cell) -> Tag {
    let direction = u64::from(flow == Flow::Gradient);
    Tag(direction << 63 | u64::from(boundary) << 32 | u64::from(cell.micro_batch.0))
}

/// What a panic said.
pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "without a message".to_owned())
}

fn no_input_gradient(stage: StageId) -> Error {
    Error::Stage(pipewright_stages::Error::invalid(format!(
        "stage {stage} gave no input gradient, which the stage before it needs; \
         only the first stage of a model may give none"
    )))
}
