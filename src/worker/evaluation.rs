//! Forward passes alone: an evaluation, the search for a number that is not finite, and the next tokens of a
//! text.

use pipewright_stages::loss::Score;
use pipewright_stages::{Shape, Stage};

use super::Worker;
use super::execution::{Execution, NextTokens};
use super::progress::WaitsFor;
use crate::data::DataSource;
use crate::error::{CallError, Finding, Result};
use crate::fabric::{Call, Tag};
use crate::id::{MicroBatch, Rank, StageId};
use crate::schedule::{Cell, Placement, Schedule};

/// How many rounds may be under way at once.
const ROUNDS: u32 = 2;

/// Forward passes over any number of micro-batches, in rounds. A round has as many micro-batches as there are
/// stages.
///
/// At most two rounds are under way. So every rank has work, and a light first stage cannot run far ahead of
/// a heavy one: the memory for wires does not grow with the number of micro-batches.
#[derive(Debug)]
pub(crate) struct Forwards {
    round: Schedule,
    /// The last round, where it is shorter.
    rest: Option<Schedule>,
    rounds: u32,
}

impl Forwards {
    /// Forward passes over `micro_batches` micro-batches, for this placement of the stages.
    ///
    /// # Errors
    /// [`CallError::no_micro_batches()`].
    pub(crate) fn new(placement: &Placement, micro_batches: u32) -> Result<Self> {
        if micro_batches == 0 {
            return Err(CallError::no_micro_batches().into());
        }
        let length = placement.stages().min(micro_batches);
        let rest = micro_batches % length;
        Ok(Self {
            round: round(placement, length)?,
            rest: (rest > 0).then(|| round(placement, rest)).transpose()?,
            rounds: micro_batches / length + u32::from(rest > 0),
        })
    }

    /// How many rounds there are.
    fn rounds(&self) -> u32 {
        self.rounds
    }

    /// The number of a round's first micro-batch, and its schedule.
    fn round(&self, round: u32) -> (u32, &Schedule) {
        let first = round * self.round.micro_batches();
        match &self.rest {
            Some(rest) if round + 1 == self.rounds => (first, rest),
            _ => (first, &self.round),
        }
    }
}

/// A schedule of forward passes. Each rank does all micro-batches of one stage before it begins its next
/// stage. So ranks with several stages do not wait for each other at each micro-batch.
fn round(placement: &Placement, micro_batches: u32) -> Result<Schedule> {
    let mut rows = vec![Vec::new(); placement.ranks() as usize];
    for (stage, rank) in (0..).zip(placement.iter()) {
        rows[rank.index()].extend((0..micro_batches).map(|micro_batch| Cell::new(stage, micro_batch)));
    }
    Ok(Schedule::from_forwards("forward passes", placement.clone(), micro_batches, rows)?)
}

impl<S: Stage> Worker<S> {
    /// Runs forward over these micro-batches of a source's step 0, from `first` on. Returns their scores, in
    /// order, on the rank of the last stage, and nothing on other ranks. `forwards`: `None` if this replica
    /// has no micro-batches.
    ///
    /// # Errors
    /// [`crate::Error::Action`] with the pass that failed.
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
        self.see_rows_of(&source.shapes().0);
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
        self.see_rows_of(&self.plan.data.shapes().0);
        Ok(run.scores)
    }

    /// Before the rank of the first stage begins a round, it waits until the rank of the last stage has done
    /// an earlier one.
    fn await_room(&mut self, round: u32) -> Result<()> {
        let [first, last] = self.end_ranks();
        if first != self.at.rank || last == self.at.rank || round < ROUNDS {
            return Ok(());
        }
        let peer = self.world_rank(last);
        let transport = &mut self.transport;
        let told = self.meter.wait(WaitsFor::Rank(peer), || transport.recv_bytes(peer, Tag(0)));
        told.map(|_| ())
    }

    /// After the rank of the last stage has done a round, it lets the rank of the first stage begin another
    /// one.
    fn make_room(&mut self, round: u32, rounds: u32) -> Result<()> {
        let [first, last] = self.end_ranks();
        if last != self.at.rank || first == self.at.rank || round + ROUNDS >= rounds {
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
    /// [`crate::Error::PeerGone`].
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

    /// Runs the next tokens of a text through this rank's stages. Returns the scores of what may follow, on
    /// the rank of the last stage, and nothing on other ranks. `forwards` must be for one micro-batch;
    /// `None`: another replica writes.
    ///
    /// # Errors
    /// [`crate::Error::Action`] with the pass that failed.
    pub(crate) fn next_scores(
        &mut self,
        call: Call,
        next: &NextTokens,
        forwards: Option<&Forwards>,
    ) -> Result<Vec<f32>> {
        self.transport.begin(call)?;
        let Some(forwards) = forwards else {
            return Ok(Vec::new());
        };
        self.see_rows_of(&Shape::ids(&[1, next.tokens.len()]));
        let mut run = Execution::next(next);
        self.meter.start(None)?;
        self.run(forwards.round(0).1, &mut run)?;
        self.transport.check()?;
        self.see_rows_of(&self.plan.data.shapes().0);
        Ok(run.next_scores)
    }

    /// The forward pass of one stage.
    pub(super) fn forward_next(
        &mut self,
        run: &mut Execution<'_>,
        cell: Cell,
        past: usize,
        input: S::Wire,
    ) -> Result<()> {
        let is_last = cell.stage == self.schedule.last_stage();
        let stage = &mut self.chunk(cell.stage).stage;
        if is_last {
            run.next_scores = stage.next_scores(past, input)?;
        } else {
            let output = stage.forward_next(past, input)?;
            self.pass_on(run, cell, output);
        }
        Ok(())
    }
}
