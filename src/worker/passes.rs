//! What a compute pass, a send and a receive do on a rank.

use pipewright_stages::{ForwardContext, Mode, Stage, Tensor};

use super::Worker;
use super::slot::Held;
use crate::error::{Error, Result};
use crate::fabric::Tag;
use crate::id::{StageId, WorldRank};
use crate::schedule::{Cell, Flow};

impl<S: Stage> Worker<S> {
    pub(super) fn forward(&mut self, step: u64, cell: Cell) -> Result<()> {
        let at = ForwardContext {
            step,
            micro_batch: cell.micro_batch.0,
            mode: Mode::Train,
        };
        let input = self.input(step, cell)?;
        let target = self.target(step, cell)?;
        let (output, saved) = self.slot(cell.stage).stage.forward(at, input)?;
        let saved = Held::new(saved);
        self.meter.hold(saved.bytes);
        self.meter.enter();
        self.cell(cell).saved = Some(saved);
        if let Some(target) = target {
            let loss = self
                .loss
                .as_mut()
                .expect("built: the last stage's rank has the loss");
            let (score, grad) = loss.start(cell.micro_batch.0, output, target)?;
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

    /// The target of a forward pass, at the last stage. Taken before the pass, as all that it waits for.
    fn target(&mut self, step: u64, cell: Cell) -> Result<Option<Tensor>> {
        if cell.stage != self.schedule.last_stage() {
            return Ok(None);
        }
        let targets = self
            .targets
            .as_mut()
            .expect("built: the last stage's rank has targets");
        self.meter.wait(|| targets.take(step, cell.micro_batch)).map(Some)
    }

    pub(super) fn backward(&mut self, cell: Cell) -> Result<()> {
        let (saved, grad) = self.backward_inputs(cell)?;
        let input_grad = self.slot(cell.stage).stage.backward(saved.value, grad)?;
        self.meter.free(saved.bytes);
        self.give_back(cell, input_grad)
    }

    pub(super) fn backward_input(&mut self, cell: Cell) -> Result<()> {
        let (saved, grad) = self.backward_inputs(cell)?;
        let (input_grad, pending) = self.slot(cell.stage).stage.backward_input(saved.value, grad)?;
        let pending = Held::new(pending);
        self.meter.free(saved.bytes);
        self.meter.hold(pending.bytes);
        self.cell(cell).pending = Some(pending);
        self.give_back(cell, input_grad)
    }

    /// What forward kept, made whole, and the output gradient: from the loss or the next stage on this rank, or another rank.
    fn backward_inputs(&mut self, cell: Cell) -> Result<(Held<S::Saved>, S::Wire)> {
        let grad = match self.cell(cell).grad.take() {
            Some(grad) => grad,
            None => self.wait(Flow::Gradient, cell)?,
        };
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

    pub(super) fn send(&mut self, flow: Flow, cell: Cell) -> Result<()> {
        let held = self.cell(cell);
        let (wire, peer_stage) = match flow {
            Flow::Activation => (held.output.take(), cell.stage.0 + 1),
            Flow::Gradient => (held.input_grad.take(), cell.stage.0 - 1),
        };
        let wire = wire.expect("checked: a pass before the send of its result");
        let peer = self.world_rank(self.schedule.rank_of(StageId(peer_stage)));
        self.meter.sent(flow, cell);
        self.transport
            .send(peer, tag(flow, cell.stage.0.max(peer_stage), cell), wire)
    }

    pub(super) fn wait(&mut self, flow: Flow, cell: Cell) -> Result<S::Wire> {
        let (peer, tag) = self.source(flow, cell);
        let transport = &mut self.transport;
        let slot = self.slots.iter_mut().find(|slot| slot.id == cell.stage);
        let stage = &mut slot.expect("checked: the stage is on this rank").stage;
        let wire = self
            .meter
            .wait(|| Ok::<_, Error>(stage.receive(transport.wait(peer, tag)?)?))?;
        self.meter.taken(flow, cell);
        Ok(wire)
    }

    /// Where a stage's input or output gradient comes from.
    pub(super) fn source(&self, flow: Flow, cell: Cell) -> (WorldRank, Tag) {
        let peer_stage = match flow {
            Flow::Activation => cell.stage.0 - 1,
            Flow::Gradient => cell.stage.0 + 1,
        };
        let peer = self.world_rank(self.schedule.rank_of(StageId(peer_stage)));
        (peer, tag(flow, cell.stage.0.max(peer_stage), cell))
    }
}

/// The tag of a wire: its direction, the later of the two stages it passes between, its micro-batch.
pub(super) fn tag(flow: Flow, boundary: u32, cell: Cell) -> Tag {
    let direction = u64::from(flow == Flow::Gradient);
    Tag(direction << 63 | u64::from(boundary) << 32 | u64::from(cell.micro_batch.0))
}

fn no_input_gradient(stage: StageId) -> Error {
    Error::Stage(pipewright_stages::Error::invalid(format!(
        "stage {stage} gave no input gradient, which the stage before it needs; \
         only the first stage of a model may give none"
    )))
}
