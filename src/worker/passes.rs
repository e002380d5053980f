//! What a compute pass, a send and a receive do on a rank.

use std::any::Any;
use std::fmt;

use pipewright_stages::{Mode, Shape, Stage, Tensor};

use super::Worker;
use super::execution::{Execution, Finding};
use super::progress::WaitsFor;
use super::slot::Held;
use crate::error::{Error, Result};
use crate::fabric::Tag;
use crate::id::{Rank, StageId};
use crate::schedule::{Cell, Flow};

impl<S: Stage> Worker<S> {
    pub(super) fn forward(&mut self, run: &mut Execution<'_>, cell: Cell) -> Result<()> {
        let Some(input) = self.input(run, cell)? else {
            return Ok(());
        };
        let target = self.target(run, cell)?;
        let shape = shape_of(&input);
        let (output, saved) = match self.slot(cell.stage).stage.forward(run.moment(cell), input) {
            Err(error) if run.is_search() => {
                run.finding = Some(Finding {
                    stage: cell.stage,
                    what: error.to_string(),
                });
                return Ok(());
            }
            done => done?,
        };
        if run.mode == Mode::Train {
            let saved = Held::new(saved);
            self.meter.hold(saved.bytes);
            self.meter.enter();
            let held = self.cell(cell);
            held.input_shape = shape;
            held.saved = Some(saved);
        }
        match target {
            Some(target) => self.judge(run, cell, output, target),
            None => {
                self.pass_on(run, cell, output);
                Ok(())
            }
        }
    }

    /// The input of a forward pass: from the data, the stage before on this rank, or another rank. In a search there is none
    /// behind a stage that has failed.
    fn input(&mut self, run: &Execution<'_>, cell: Cell) -> Result<Option<S::Wire>> {
        let Some(before) = Flow::Activation.before(cell.stage) else {
            let input = match run.fetch(cell) {
                Some(fetched) => fetched?.0,
                None => {
                    let inputs = self.inputs.as_mut();
                    let inputs = inputs.expect("built: the first stage's rank has inputs");
                    let take = || inputs.take(run.step, cell.micro_batch);
                    self.meter.wait(WaitsFor::Nobody, take)?
                }
            };
            return Ok(Some(self.slot(cell.stage).stage.load(input)?));
        };
        if self.schedule.rank_of(before) != self.rank {
            return self.wait(run, Flow::Activation, cell);
        }
        let input = self.cell(cell).input.take();
        assert!(
            input.is_some() || run.is_search(),
            "checked: the stage before comes first"
        );
        Ok(input)
    }

    /// The target of a forward pass, at the last stage. Taken before the pass, as all that it waits for.
    fn target(&mut self, run: &Execution<'_>, cell: Cell) -> Result<Option<Tensor>> {
        if cell.stage != self.schedule.last_stage() || run.is_search() {
            return Ok(None);
        }
        let target = match run.fetch(cell) {
            Some(fetched) => fetched?.1,
            None => {
                let targets = self.targets.as_mut();
                let targets = targets.expect("built: the last stage's rank has targets");
                let take = || targets.take(run.step, cell.micro_batch);
                self.meter.wait(WaitsFor::Nobody, take)?
            }
        };
        Ok(Some(target))
    }

    /// What the loss says of the last stage's output.
    fn judge(&mut self, run: &mut Execution<'_>, cell: Cell, output: S::Wire, target: Tensor) -> Result<()> {
        let shape = shape_of(&output);
        let loss = self
            .loss
            .as_mut()
            .expect("built: the last stage's rank has the loss");
        if run.mode != Mode::Train {
            run.score.add(loss.score(output, target)?);
            return Ok(());
        }
        let (score, grad) = loss.start(cell.micro_batch.0, output, target)?;
        check_gradient(&"the loss", "an output", shape, &grad)?;
        self.scores[cell.micro_batch.index()] = score;
        self.cell(cell).grad = Some(grad);
        Ok(())
    }

    /// Gives an output to the next stage on this rank, or keeps it to be sent.
    fn pass_on(&mut self, run: &Execution<'_>, cell: Cell, output: S::Wire) {
        if let Some(next) = self.neighbour(cell, 1) {
            next.input = Some(output);
        } else if !(run.is_search() && cell.stage == self.schedule.last_stage()) {
            self.cell(cell).output = Some(output);
        }
    }

    pub(super) fn backward(&mut self, run: &Execution<'_>, cell: Cell) -> Result<()> {
        let (saved, grad) = self.backward_inputs(run, cell)?;
        let input_grad = self.slot(cell.stage).stage.backward(saved.value, grad)?;
        self.meter.free(saved.bytes);
        self.give_back(cell, input_grad)
    }

    pub(super) fn backward_input(&mut self, run: &Execution<'_>, cell: Cell) -> Result<()> {
        let (saved, grad) = self.backward_inputs(run, cell)?;
        let (input_grad, pending) = self.slot(cell.stage).stage.backward_input(saved.value, grad)?;
        let pending = Held::new(pending);
        self.meter.free(saved.bytes);
        self.meter.hold(pending.bytes);
        self.cell(cell).pending = Some(pending);
        self.give_back(cell, input_grad)
    }

    /// What forward kept, made whole, and the output gradient: from the loss or the next stage on this rank, or another rank.
    fn backward_inputs(&mut self, run: &Execution<'_>, cell: Cell) -> Result<(Held<S::Saved>, S::Wire)> {
        let grad = match self.cell(cell).grad.take() {
            Some(grad) => Some(grad),
            None => self.wait(run, Flow::Gradient, cell)?,
        };
        let grad = grad.expect("a search has no backward passes");
        let saved = self
            .cell(cell)
            .saved
            .take()
            .expect("checked: forward before backward-input");
        self.meter.free(saved.bytes);
        let saved = Held::new(self.slot(cell.stage).stage.restore(saved.value)?);
        self.meter.hold(saved.bytes);
        Ok((saved, grad))
    }

    /// Hands the input gradient to the stage before, on this rank, or keeps it to be sent.
    fn give_back(&mut self, cell: Cell, input_grad: Option<S::Wire>) -> Result<()> {
        self.meter.leave();
        if cell.stage == StageId(0) {
            return Ok(());
        }
        let input_grad = input_grad.ok_or_else(|| no_input_gradient(cell.stage))?;
        let shape = self.cell(cell).input_shape.take();
        check_gradient(
            &format_args!("stage {}", cell.stage),
            "an input",
            shape,
            &input_grad,
        )?;
        match self.neighbour(cell, -1) {
            Some(before) => before.grad = Some(input_grad),
            None => self.cell(cell).input_grad = Some(input_grad),
        }
        Ok(())
    }

    pub(super) fn backward_weight(&mut self, cell: Cell) -> Result<()> {
        let pending = self
            .cell(cell)
            .pending
            .take()
            .expect("checked: backward-input before backward-weight");
        self.slot(cell.stage).stage.backward_weight(pending.value)?;
        self.meter.free(pending.bytes);
        Ok(())
    }

    pub(super) fn send(&mut self, run: &Execution<'_>, flow: Flow, cell: Cell) -> Result<()> {
        let held = self.cell(cell);
        let wire = match flow {
            Flow::Activation => held.output.take(),
            Flow::Gradient => held.input_grad.take(),
        };
        let to = flow
            .after(cell.stage)
            .expect("checked: a transfer has a receiver");
        let rank = self.schedule.rank_of(to);
        if run.is_search() {
            self.send_block(rank, vec![1; usize::from(wire.is_some())])?;
            if wire.is_none() {
                return Ok(());
            }
        }
        let wire = wire.expect("checked: a pass before the send of its result");
        self.meter.sent(flow, cell);
        self.send_wire(rank, tag(run, flow, cell.stage.max(to), cell), wire)
    }

    /// Sends a wire. It waits only while the receiver has no room.
    pub(super) fn send_wire(&mut self, rank: Rank, tag: Tag, wire: S::Wire) -> Result<()> {
        let peer = self.world_rank(rank);
        self.meter.progress.wait_for(WaitsFor::Rank(peer));
        let sent = self.transport.send(peer, tag, wire);
        self.meter.progress.wait_for(WaitsFor::Nobody);
        sent
    }

    /// Sends a block. It waits only while the receiver has no room.
    pub(super) fn send_block(&mut self, rank: Rank, block: Vec<u8>) -> Result<()> {
        let peer = self.world_rank(rank);
        self.meter.progress.wait_for(WaitsFor::Rank(peer));
        let sent = self.transport.send_bytes(peer, block);
        self.meter.progress.wait_for(WaitsFor::Nobody);
        sent
    }

    /// Announces what another rank will send. In a search it may never come, so nothing is announced.
    pub(super) fn announce(&mut self, run: &Execution<'_>, flow: Flow, cell: Cell) -> Result<()> {
        if run.is_search() {
            return Ok(());
        }
        let (rank, tag) = self.source(run, flow, cell);
        self.transport.post_recv(self.world_rank(rank), tag)
    }

    /// Waits for what another rank sends. In a search the other says first whether there is anything.
    fn wait(&mut self, run: &Execution<'_>, flow: Flow, cell: Cell) -> Result<Option<S::Wire>> {
        let (rank, tag) = self.source(run, flow, cell);
        let peer = self.world_rank(rank);
        let transport = &mut self.transport;
        let slot = self.slots.iter_mut().find(|slot| slot.id == cell.stage);
        let stage = &mut slot.expect("checked: the stage is on this rank").stage;
        let wire = self.meter.wait(WaitsFor::Rank(peer), || {
            if run.is_search() && transport.recv_bytes(peer)?.is_empty() {
                return Ok(None);
            }
            Ok(Some(stage.receive(transport.wait(peer, tag)?)?))
        })?;
        self.meter.taken(flow, cell);
        Ok(wire)
    }

    /// Where a stage's input or output gradient comes from.
    fn source(&self, run: &Execution<'_>, flow: Flow, cell: Cell) -> (Rank, Tag) {
        let from = flow.before(cell.stage).expect("checked: a transfer has a sender");
        (
            self.schedule.rank_of(from),
            tag(run, flow, cell.stage.max(from), cell),
        )
    }
}

/// The tag of a wire: its direction, the later of the two stages it passes between, its micro-batch.
fn tag(run: &Execution<'_>, flow: Flow, boundary: StageId, cell: Cell) -> Tag {
    let direction = u64::from(flow == Flow::Gradient);
    Tag(direction << 63 | u64::from(boundary.0) << 32 | u64::from(run.micro_batch(cell).0))
}

/// The shape of a wire, where it is a tensor.
fn shape_of<W: 'static>(wire: &W) -> Option<Shape> {
    let wire: &dyn Any = wire;
    wire.downcast_ref::<Tensor>().map(|tensor| *tensor.shape())
}

/// Refuses a gradient of another shape than what it is the gradient of.
fn check_gradient<W: 'static>(
    giver: &dyn fmt::Display,
    of: &str,
    shape: Option<Shape>,
    gradient: &W,
) -> Result<()> {
    match (shape, shape_of(gradient)) {
        (Some(shape), Some(got)) if shape.dims() != got.dims() => {
            Err(Error::Stage(pipewright_stages::Error::invalid(format!(
                "{giver} gave a gradient of {got} for {of} of {shape}: a gradient has the shape of what it belongs to"
            ))))
        }
        _ => Ok(()),
    }
}

fn no_input_gradient(stage: StageId) -> Error {
    Error::Stage(pipewright_stages::Error::invalid(format!(
        "stage {stage} gave no input gradient, which the stage before it needs; \
         only the first stage of a model may give none"
    )))
}
