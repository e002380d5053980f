//! What a compute pass, a send, a receive and a move of activations to the host and back do on a rank.

use std::any::Any;
use std::sync::Arc;

use pipewright_stages::loss::MicroBatchLoss;
use pipewright_stages::{Borders, Mode, Offloaded, Shape, Stage, Tensor};

use super::Worker;
use super::chunk::{Chunk, Counted, chunk_of};
use super::execution::Execution;
use super::progress::WaitsFor;
use crate::error::{DataError, Error, Finding, Problem, Result};
use crate::fabric::Tag;
use crate::id::{Rank, StageId};
use crate::schedule::{Cell, Flow, Move, MoveStep};

impl<S: Stage> Worker<S> {
    pub(super) fn forward(&mut self, run: &mut Execution<'_>, cell: Cell) -> Result<()> {
        let Some(input) = self.input(run, cell)? else {
            return Ok(());
        };
        if let Some(next) = run.next {
            return self.forward_next(run, cell, next.past, input);
        }
        let target = self.target(run, cell)?;
        self.set_borders(run, cell)?;
        let shape = shape_of(&input);
        let Chunk { stage, deferred, .. } = chunk_of(&mut self.chunks, cell.stage);
        let is_deferred = target.is_some() && !deferred.is_of_none();
        let ran = match is_deferred {
            true => stage.forward_before_head(run.context(cell), input),
            false => stage.forward(run.context(cell), input),
        };
        let (output, saved) = match ran {
            Err(error) if run.is_search() => {
                run.finding = Some(Finding::new(cell.stage, error));
                return Ok(());
            }
            done => done?,
        };
        let goes_back = run.mode == Mode::Train && cell.stage >= self.first_trained;
        if goes_back {
            let saved = Counted::new(saved);
            self.meter.hold(saved.bytes);
            self.meter.enter();
            let held = self.cell(cell);
            held.input_shape = shape;
            held.saved = Some(saved);
        }
        match target {
            Some(target) if is_deferred && goes_back => {
                self.cell(cell).before_head = Some((output, target));
                Ok(())
            }
            Some(target) => {
                let grad = self.apply_loss(run, cell, output, target)?;
                self.cell(cell).grad = grad;
                Ok(())
            }
            None => {
                self.pass_on(run, cell, output);
                Ok(())
            }
        }
    }

    /// The input of a forward pass: from the data, from the previous stage on this rank, or from another
    /// rank. In a search there is no input after a stage that failed.
    fn input(&mut self, run: &Execution<'_>, cell: Cell) -> Result<Option<S::Wire>> {
        let Some(before) = Flow::Activation.before(cell.stage) else {
            let input = match (run.next, self.fetch(run, cell)) {
                (Some(next), _) => next.input()?,
                (None, Some(fetched)) => fetched?.0,
                (None, None) => {
                    let inputs = self.inputs.as_mut();
                    let inputs = inputs.expect("built: the first stage's rank has inputs");
                    self.meter.take(inputs, run.step, run.micro_batch(cell))?
                }
            };
            return Ok(Some(self.chunk(cell.stage).stage.load(input)?));
        };
        if self.schedule.rank_of(before) != self.at.rank {
            return self.wait(run, Flow::Activation, cell);
        }
        let input = self.cell(cell).input.take();
        assert!(input.is_some() || run.is_search(), "checked: the stage before comes first");
        Ok(input)
    }

    /// The target of a forward pass of the last stage. It is taken before the pass begins, so that the pass
    /// does not wait.
    fn target(&mut self, run: &Execution<'_>, cell: Cell) -> Result<Option<Tensor>> {
        if cell.stage != self.schedule.last_stage() || run.is_search() {
            return Ok(None);
        }
        let target = match self.fetch(run, cell) {
            Some(fetched) => fetched?.1,
            None => {
                let targets = self.targets.as_mut();
                let targets = targets.expect("built: the last stage's rank has targets");
                self.meter.take(targets, run.step, run.micro_batch(cell))?
            }
        };
        Ok(Some(target))
    }

    /// A micro-batch from the source of an evaluation or a search, which may take its time.
    fn fetch(&self, run: &Execution<'_>, cell: Cell) -> Option<Result<(Tensor, Tensor)>> {
        let progress = &self.meter.progress;
        progress.during(WaitsFor::Data, || run.fetch(cell))
    }

    /// Tells the rank's stages where the documents of a micro-batch begin. Evaluations take their data from
    /// any source, and all have the same steps and numbers of micro-batches. So what the source of one of
    /// them has said does not count for another.
    fn set_borders(&mut self, run: &Execution<'_>, cell: Cell) -> Result<()> {
        let ctx = run.context(cell);
        let is_known = |borders: &Borders| run.mode == Mode::Train && borders.has(ctx);
        if self.borders.as_ref().is_some_and(is_known) {
            return Ok(());
        }
        let (step, micro_batch) = (run.step, run.micro_batch(cell));
        let source = run.source.unwrap_or(self.plan.data.as_ref());
        let progress = &self.meter.progress;
        let asked = progress.during(WaitsFor::Data, || source.documents(step, micro_batch));
        let failed = |source| DataError::Source { step, micro_batch, source: Arc::new(source) };
        match (asked.map_err(failed)?, &self.borders) {
            (Some(starts), Some(borders)) => Ok(borders.set(ctx, starts)?),
            (Some(starts), None) => {
                let borders = Borders::default();
                borders.set(ctx, starts)?;
                self.chunks.iter_mut().try_for_each(|chunk| chunk.stage.keep_apart(&borders))?;
                self.borders = Some(borders);
                Ok(())
            }
            (None, Some(borders)) => {
                borders.remove(ctx);
                Ok(())
            }
            (None, None) => Ok(()),
        }
    }

    /// Gives the last stage's output to the loss, after its head, if that is deferred. In training, returns
    /// the gradient of what is given. A gradient group of the head ends here.
    fn apply_loss(
        &mut self,
        run: &mut Execution<'_>,
        cell: Cell,
        output: S::Wire,
        target: Tensor,
    ) -> Result<Option<S::Wire>> {
        let loss = self.loss.as_deref_mut().expect("built: the last stage's rank has the loss");
        let mut loss = MicroBatchLoss::new(loss, cell.micro_batch.0, target, run.mode == Mode::Train);
        let Chunk { stage, deferred, .. } = chunk_of(&mut self.chunks, cell.stage);
        let grad = if deferred.is_of_none() {
            loss.take(output)?
        } else {
            let trains = run.mode == Mode::Train;
            let is_private = trains && self.plan.privacy.is_some();
            let ends = self.share.ends_group(run.micro_batch(cell)).filter(|_| trains && !is_private);
            if let Some((group, next)) = ends {
                deferred.expect_end(stage, group, next);
            }
            let grad = stage.head_and_loss(run.context(cell), output, &mut loss)?;
            if let Some(ended) = ends {
                deferred.end_group(stage, ended, &mut self.together)?;
            }
            if is_private {
                deferred.keep_apart(stage, &mut self.together)?;
            }
            grad
        };
        match (run.mode, loss.score()) {
            (Mode::Train, score) => {
                self.scores[cell.micro_batch.index()] = score;
                self.count_loss(run)?;
            }
            (_, score) => run.scores.push(score.expect("an evaluation waits for each score")),
        }
        Ok(grad)
    }

    /// Gives an output to the next stage on this rank, or keeps it until it is sent.
    pub(super) fn pass_on(&mut self, run: &Execution<'_>, cell: Cell, output: S::Wire) {
        if let Some(next) = self.neighbour(cell, 1) {
            next.input = Some(output);
        } else if !(run.is_search() && cell.stage == self.schedule.last_stage()) {
            self.cell(cell).output = Some(output);
        }
    }

    pub(super) fn backward(&mut self, run: &mut Execution<'_>, cell: Cell) -> Result<()> {
        let (saved, grad) = self.backward_inputs(run, cell)?;
        self.expect_end(run, cell);
        let input_grad = self.chunk(cell.stage).stage.backward(saved.value, grad)?;
        self.meter.free(saved.bytes);
        self.end_group(run, cell)?;
        self.give_back(cell, input_grad)
    }

    pub(super) fn backward_input(&mut self, run: &mut Execution<'_>, cell: Cell) -> Result<()> {
        let (saved, grad) = self.backward_inputs(run, cell)?;
        let (input_grad, pending) = self.chunk(cell.stage).stage.backward_input(saved.value, grad)?;
        let pending = Counted::new(pending);
        self.meter.free(saved.bytes);
        self.meter.hold(pending.bytes);
        self.cell(cell).pending = Some(pending);
        self.give_back(cell, input_grad)
    }

    /// What forward kept, restored if it is recomputed; and the output gradient, from the loss, from the next
    /// stage on this rank, or from another rank. If the head is deferred, it runs here.
    fn backward_inputs(
        &mut self,
        run: &mut Execution<'_>,
        cell: Cell,
    ) -> Result<(Counted<S::Saved>, S::Wire)> {
        let held = self.cell(cell);
        let grad = match (held.grad.take(), held.before_head.take()) {
            (Some(grad), _) => Some(grad),
            (None, Some((input, target))) => self.apply_loss(run, cell, input, target)?,
            (None, None) => self.wait(run, Flow::Gradient, cell)?,
        };
        let grad = grad.expect("a search has no backward passes");
        let held = self.cell(cell);
        let saved = held.saved.take();
        let mut saved = saved.expect("checked: forward before backward-input");
        if let Some(away) = held.away.take() {
            away.finish(&mut saved.value)?;
            // The pass begins when all is back.
            self.meter.begin_pass()?;
        }
        self.meter.free(saved.bytes);
        let saved = Counted::new(self.chunk(cell.stage).stage.restore(saved.value)?);
        self.meter.hold(saved.bytes);
        Ok((saved, grad))
    }

    /// Gives the input gradient to the previous stage on this rank, or keeps it until it is sent.
    fn give_back(&mut self, cell: Cell, input_grad: Option<S::Wire>) -> Result<()> {
        self.meter.leave();
        if cell.stage <= self.first_trained {
            return Ok(());
        }
        let stage = cell.stage;
        let input_grad = input_grad.ok_or_else(|| Error::Gradient(Problem::new(format!(
            "stage {stage} gave no input gradient, which the stage before it needs; only the first stage of \
             a model may give none"
        ))))?;
        let shape = self.cell(cell).input_shape.take();
        if let Some((input, got)) = unlike(shape, &input_grad) {
            return Err(Error::Gradient(Problem::new(format!(
                "stage {stage} gave a gradient of {got} for an input of {input}: a gradient has the shape of \
                 what it belongs to"
            ))));
        }
        match self.neighbour(cell, -1) {
            Some(before) => before.grad = Some(input_grad),
            None => self.cell(cell).input_grad = Some(input_grad),
        }
        Ok(())
    }

    pub(super) fn backward_weight(&mut self, run: &Execution<'_>, cell: Cell) -> Result<()> {
        let pending = self.cell(cell).pending.take().expect("checked: backward-input before backward-weight");
        self.expect_end(run, cell);
        self.chunk(cell.stage).stage.backward_weight(pending.value)?;
        self.meter.free(pending.bytes);
        self.end_group(run, cell)
    }

    /// Tells the stage that the micro-batch is the last of its gradient group, if it is. Called before the
    /// stage adds the gradients.
    fn expect_end(&mut self, run: &Execution<'_>, cell: Cell) {
        if self.plan.privacy.is_some() {
            return;
        }
        if let Some((group, next)) = self.share.ends_group(run.micro_batch(cell)) {
            let chunk = self.chunk(cell.stage);
            chunk.partials.expect_end(&mut chunk.stage, group, next);
        }
    }

    /// If the micro-batch is the last of its gradient group, the group's sum is added to earlier ones. With
    /// differential privacy, the gradient of each micro-batch is kept apart instead.
    fn end_group(&mut self, run: &Execution<'_>, cell: Cell) -> Result<()> {
        if self.plan.privacy.is_some() {
            let chunk = chunk_of(&mut self.chunks, cell.stage);
            chunk.stage.sum_rows()?;
            return chunk.partials.keep_apart(&mut chunk.stage, &mut self.together);
        }
        match self.share.ends_group(run.micro_batch(cell)) {
            Some(ended) => {
                let chunk = chunk_of(&mut self.chunks, cell.stage);
                let together = &mut self.together;
                chunk.stage.sum_rows()?;
                chunk.partials.end_group(&mut chunk.stage, ended, together)
            }
            None => Ok(()),
        }
    }

    pub(super) fn send(&mut self, run: &Execution<'_>, flow: Flow, cell: Cell) -> Result<()> {
        let held = self.cell(cell);
        let wire = match flow {
            Flow::Activation => held.output.take(),
            Flow::Gradient => held.input_grad.take(),
        };
        let to = flow.after(cell.stage).expect("checked: a transfer has a receiver");
        let rank = self.schedule.rank_of(to);
        if run.is_search() {
            self.send_block(rank, vec![1; usize::from(wire.is_some())])?;
            if wire.is_none() {
                return Ok(());
            }
        }
        let mut wire = wire.expect("checked: a pass before the send of its result");
        if self.is_elsewhere(rank) {
            wire = self.chunk(cell.stage).stage.narrow(wire)?;
        }
        self.meter.sent(flow, run.in_batch(cell));
        self.send_wire(rank, tag(run, flow, cell.stage.max(to), cell), wire)
    }

    /// Whether a rank of this replica is in another process. Both give the same answer.
    fn is_elsewhere(&self, rank: Rank) -> bool {
        let mesh = &self.plan.mesh;
        mesh.process(self.world_rank(rank)) != mesh.process(self.world_rank(self.at.rank))
    }

    /// Sends a wire. It waits only while the receiver has no room.
    pub(super) fn send_wire(&mut self, rank: Rank, tag: Tag, wire: S::Wire) -> Result<()> {
        let peer = self.world_rank(rank);
        let (progress, transport) = (&self.meter.progress, &mut self.transport);
        progress.during(WaitsFor::Rank(peer), || transport.send(peer, tag, wire))
    }

    /// Sends a block. It waits only while the receiver has no room.
    pub(super) fn send_block(&mut self, rank: Rank, block: Vec<u8>) -> Result<()> {
        let peer = self.world_rank(rank);
        let (progress, transport) = (&self.meter.progress, &mut self.transport);
        progress.during(WaitsFor::Rank(peer), || transport.send_bytes(peer, Tag(0), block))
    }

    /// Announces a receive. In a search the wire may never come, so nothing is announced.
    pub(super) fn announce(&mut self, run: &Execution<'_>, flow: Flow, cell: Cell) -> Result<()> {
        if run.is_search() {
            return Ok(());
        }
        let (rank, tag) = self.source(run, flow, cell);
        self.transport.post_recv(self.world_rank(rank), tag)
    }

    /// Waits for a wire from another rank. In a search the sender first says whether there is one.
    fn wait(&mut self, run: &Execution<'_>, flow: Flow, cell: Cell) -> Result<Option<S::Wire>> {
        let (rank, tag) = self.source(run, flow, cell);
        let peer = self.world_rank(rank);
        let come = self.reduce_until(peer, tag)?;
        let is_elsewhere = self.is_elsewhere(rank);
        let transport = &mut self.transport;
        let stage = &mut chunk_of(&mut self.chunks, cell.stage).stage;
        let mut receive = |wire| match is_elsewhere {
            true => stage.widen(wire).and_then(|wire| stage.receive(wire)),
            false => stage.receive(wire),
        };
        let come = match come {
            None if !run.is_search() => transport.poll(peer, tag)?,
            come => come,
        };
        // Taking a wire that has already arrived is not timed: reading the clock would take longer.
        let wire = match come {
            Some(wire) => {
                let wire = receive(wire)?;
                self.meter.begin_pass()?;
                Some(wire)
            }
            None => self.meter.wait(WaitsFor::Rank(peer), || {
                if run.is_search() && transport.recv_bytes(peer, Tag(0))?.is_empty() {
                    return Ok(None);
                }
                Ok(Some(receive(transport.wait(peer, tag)?)?))
            })?,
        };
        self.meter.taken(flow, run.in_batch(cell));
        Ok(wire)
    }

    /// Where a stage's input or output gradient comes from.
    fn source(&self, run: &Execution<'_>, flow: Flow, cell: Cell) -> (Rank, Tag) {
        let from = flow.before(cell.stage).expect("checked: a transfer has a sender");
        (self.schedule.rank_of(from), tag(run, flow, cell.stage.max(from), cell))
    }

    /// Does what is to be moved before the next pass. What is not on a GPU stays where it is.
    pub(super) fn move_activations(&mut self, run: &mut Execution<'_>) -> Result<()> {
        if run.mode != Mode::Train {
            return Ok(());
        }
        while let Some(&next) = self.moves.get(run.moved)
            && next.before <= run.passes
        {
            self.move_one(next)?;
            run.moved += 1;
        }
        run.passes += 1;
        Ok(())
    }

    fn move_one(&mut self, Move { step, cell, .. }: Move) -> Result<()> {
        let held = self.cell(cell);
        match (step, &mut held.saved, &mut held.away) {
            (MoveStep::Out, Some(saved), away) => {
                *away = Offloaded::start(&mut saved.value)?;
                let bytes = away.as_ref().map_or(0, Offloaded::bytes);
                self.meter.offload(bytes);
            }
            (MoveStep::Free, _, Some(away)) => {
                away.free()?;
                let bytes = away.bytes();
                self.meter.free(bytes);
            }
            (MoveStep::Back, _, Some(away)) => {
                away.fetch()?;
                let bytes = away.bytes();
                self.meter.hold(bytes);
            }
            // A frozen stage keeps nothing.
            _ => {}
        }
        Ok(())
    }
}

/// The tag of a wire: its direction, the later of its two stages, and its micro-batch.
fn tag(run: &Execution<'_>, flow: Flow, boundary: StageId, cell: Cell) -> Tag {
    let direction = u64::from(flow == Flow::Gradient);
    Tag(direction << 63 | u64::from(boundary.0) << 32 | u64::from(run.micro_batch(cell).0))
}

/// The shape of a wire, if it is a tensor.
fn shape_of<W: 'static>(wire: &W) -> Option<Shape> {
    let wire: &dyn Any = wire;
    wire.downcast_ref::<Tensor>().map(|tensor| *tensor.shape())
}

/// The expected and the actual shape of a gradient, if they differ.
fn unlike<W: 'static>(shape: Option<Shape>, gradient: &W) -> Option<(Shape, Shape)> {
    let (shape, got) = (shape?, shape_of(gradient)?);
    (shape.dims() != got.dims()).then_some((shape, got))
}
