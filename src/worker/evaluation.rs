//! Forward passes alone: an evaluation, and the search for a number that is not finite.

use pipewright_stages::Stage;
use pipewright_stages::loss::Score;

use super::Worker;
use super::execution::Execution;
use super::forwards::{Forwards, ROUNDS};
use super::progress::WaitsFor;
use crate::data::DataSource;
use crate::error::{Finding, Result};
use crate::fabric::{Call, Tag};
use crate::id::{MicroBatch, Rank, StageId};

impl<S: Stage> Worker<S> {
    /// Runs forward over these micro-batches of a source's step 0, from `first` on. Returns their scores, in
    /// order, on the rank of the last stage, and nothing on other ranks. `forwards`: `None` if this replica
    /// has no micro-batches.
    ///
    /// # Errors
    /// [`Error::Action`] with the pass that failed.
    pub(crate) fn evaluate(
        &mut self,
        call: Call,
        source: &dyn DataSource,
        first: u32,
        forwards: Option<&Forwards>,
    ) -> Result<Vec<Score>> {
        self.transport.begin(call)?;
        let Some(forwards) = forwards else {
            return Ok(Vec::new());
        };
        let mut run = Execution::evaluation(source);
        for round in 0..forwards.rounds() {
            self.await_room(round)?;
            let (before, schedule) = forwards.round(round);
            run.first = first + before;
            self.meter.start(None)?;
            self.run(schedule, &mut run)?;
            self.make_room(round, forwards.rounds())?;
        }
        // If a peer has stopped, its last wires may be incomplete, and so the score would mean nothing.
        self.transport.check()?;
        Ok(run.scores)
    }

    /// Before the rank of the first stage begins a round, it waits until the rank of the last stage has done
    /// an earlier one.
    fn await_room(&mut self, round: u32) -> Result<()> {
        let [first, last] = self.end_ranks();
        if first != self.rank || last == self.rank || round < ROUNDS {
            return Ok(());
        }
        let peer = self.world_rank(last);
        let transport = &mut self.transport;
        let told = self
            .meter
            .wait(WaitsFor::Rank(peer), || transport.recv_bytes(peer, Tag(0)));
        told.map(|_| ())
    }

    /// After the rank of the last stage has done a round, it lets the rank of the first stage begin another
    /// one.
    fn make_room(&mut self, round: u32, rounds: u32) -> Result<()> {
        let [first, last] = self.end_ranks();
        if last != self.rank || first == self.rank || round + ROUNDS >= rounds {
            return Ok(());
        }
        self.send_block(first, Vec::new())
    }

    /// The ranks of the first and the last stage.
    fn end_ranks(&self) -> [Rank; 2] {
        [StageId(0), self.schedule.last_stage()].map(|stage| self.schedule.rank_of(stage))
    }

    /// Runs one training micro-batch forward and returns the first failure of this rank's stages, such as the
    /// first layer whose output is not finite. Only the first replica does it. `forwards` must be for one
    /// micro-batch.
    ///
    /// # Errors
    /// [`Error::PeerGone`].
    pub(crate) fn search(
        &mut self,
        call: Call,
        source: &dyn DataSource,
        step: u64,
        micro_batch: MicroBatch,
        forwards: &Forwards,
    ) -> Result<Option<Finding>> {
        self.transport.begin(call)?;
        if self.share.replica > 0 {
            return Ok(None);
        }
        let mut run = Execution::search(source, step, micro_batch);
        self.meter.start(None)?;
        self.run(forwards.round(0).1, &mut run)?;
        Ok(run.finding)
    }
}
