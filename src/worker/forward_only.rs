//! Passes without training: evaluation over any number of micro-batches, and the search for a number that is not finite.

use pipewright_stages::loss::Score;
use pipewright_stages::{ForwardContext, Mode, Stage, Tensor};

use super::Worker;
use super::passes::tag;
use crate::data::DataSource;
use crate::error::Result;
use crate::id::{MicroBatch, Rank, StageId};
use crate::schedule::{Action, Cell, Flow, Pass};

impl<S: Stage> Worker<S> {
    /// Runs forward over micro-batches `0..micro_batches` of step 0 of a source; gives the summed score on the rank of
    /// the last stage, zero elsewhere. All ranks go through (micro-batch, stage) in one order, so it cannot lock up.
    ///
    /// # Errors
    /// [`crate::Error::Action`] with the pass that failed.
    pub(crate) fn evaluate(&mut self, source: &dyn DataSource, micro_batches: u32) -> Result<Score> {
        let mut total = Score::default();
        let stages: Vec<StageId> = self.slots.iter().map(|slot| slot.id).collect();
        let cells = (0..micro_batches).map(MicroBatch).flat_map(|micro_batch| {
            stages
                .iter()
                .map(move |&stage| Action::Compute(Pass::Forward, Cell { stage, micro_batch }))
        });
        self.run(cells, |worker, action| {
            let Action::Compute(_, cell) = action else {
                unreachable!("made above")
            };
            worker.wait_for_room(cell)?;
            total.add(worker.evaluate_cell(source, cell)?);
            worker.make_room(cell, micro_batches)
        })?;
        // A score made of what a peer has not sent to its end is none.
        self.transport.check()?;
        Ok(total)
    }

    /// How many micro-batches of an evaluation are under way at most. Without a limit a light first stage would run ahead of a
    /// heavy one and pile up wires.
    fn in_flight(&self) -> u32 {
        2 * self.schedule.stages()
    }

    /// Before the first stage begins a micro-batch: waits until an earlier one has left the last stage.
    fn wait_for_room(&mut self, cell: Cell) -> Result<()> {
        let last = self.schedule.rank_of(self.schedule.last_stage());
        if cell.stage != StageId(0) || cell.micro_batch.0 < self.in_flight() || last == self.rank {
            return Ok(());
        }
        self.transport.recv_bytes(self.world_rank(last)).map(|_| ())
    }

    /// After the last stage: lets the first stage begin another micro-batch, if there is one.
    fn make_room(&mut self, cell: Cell, micro_batches: u32) -> Result<()> {
        let first = self.schedule.rank_of(StageId(0));
        let more = micro_batches - cell.micro_batch.0 > self.in_flight();
        if cell.stage != self.schedule.last_stage() || first == self.rank || !more {
            return Ok(());
        }
        self.transport.send_bytes(self.world_rank(first), Vec::new())
    }

    fn evaluate_cell(&mut self, source: &dyn DataSource, cell: Cell) -> Result<Score> {
        let at = ForwardContext {
            step: 0,
            micro_batch: cell.micro_batch.0,
            mode: Mode::Evaluate,
        };
        let fetch = || source.micro_batch(0, cell.micro_batch);
        let input = self.first_or_received(cell, || Ok(fetch()?.0))?;
        let (output, _) = self.slot(cell.stage).stage.forward(at, input)?;
        if cell.stage != self.schedule.last_stage() {
            self.pass_on(cell, output)?;
            return Ok(Score::default());
        }
        let target = fetch()?.1;
        let loss = self
            .loss
            .as_mut()
            .expect("built: the last stage's rank has the loss");
        Ok(loss.score(output, target)?)
    }

    fn first_or_received(&mut self, cell: Cell, first: impl FnOnce() -> Result<Tensor>) -> Result<S::Wire> {
        if cell.stage == StageId(0) {
            return Ok(self.slot(cell.stage).stage.load(first()?)?);
        }
        match self.slot(cell.stage).handed.take() {
            Some(input) => Ok(input),
            None => self.wait(Flow::Activation, cell),
        }
    }

    /// Hands an output to the next stage, on this rank or another.
    fn pass_on(&mut self, cell: Cell, output: S::Wire) -> Result<()> {
        let next = StageId(cell.stage.0 + 1);
        let rank = self.schedule.rank_of(next);
        if rank == self.rank {
            self.slot(next).handed = Some(output);
            return Ok(());
        }
        self.transport
            .send(self.world_rank(rank), tag(Flow::Activation, next.0, cell), output)
    }

    /// Runs one training micro-batch forward and gives the first failure of this rank's stages, such as the first layer
    /// whose output is not finite. Ranks tell each other whether to go on, so that all end.
    ///
    /// # Errors
    /// [`crate::Error::PeerGone`].
    pub(crate) fn probe(
        &mut self,
        source: &dyn DataSource,
        step: u64,
        micro_batch: MicroBatch,
    ) -> Result<Option<String>> {
        let at = ForwardContext {
            step,
            micro_batch: micro_batch.0,
            mode: Mode::Probe,
        };
        let mut finding = None;
        let mut follows = true;
        for index in 0..self.slots.len() {
            let cell = Cell {
                stage: self.slots[index].id,
                micro_batch,
            };
            if let Some(before) = self.remote_stage(cell.stage.0.checked_sub(1)) {
                follows = !self.transport.recv_bytes(self.world_rank(before))?.is_empty();
            }
            let mut output = None;
            if follows {
                let input = self.first_or_received(cell, || Ok(source.micro_batch(step, micro_batch)?.0))?;
                match self.slot(cell.stage).stage.forward(at, input) {
                    Ok((wire, _)) => output = Some(wire),
                    Err(error) => finding = Some(format!("stage {}, {error}", cell.stage)),
                }
                follows = output.is_some();
            }
            self.tell_next(cell, follows)?;
            if let Some(wire) = output.filter(|_| cell.stage != self.schedule.last_stage()) {
                self.pass_on(cell, wire)?;
            }
        }
        Ok(finding)
    }

    /// Tells the next stage's rank whether a wire follows.
    fn tell_next(&mut self, cell: Cell, follows: bool) -> Result<()> {
        let next = (cell.stage != self.schedule.last_stage()).then(|| cell.stage.0 + 1);
        match self.remote_stage(next) {
            Some(peer) => self
                .transport
                .send_bytes(self.world_rank(peer), vec![1; usize::from(follows)]),
            None => Ok(()),
        }
    }

    fn remote_stage(&self, stage: Option<u32>) -> Option<Rank> {
        stage
            .map(|stage| self.schedule.rank_of(StageId(stage)))
            .filter(|&rank| rank != self.rank)
    }
}
