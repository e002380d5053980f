//! Forward passes over any number of micro-batches: one short schedule that is run again and again.

use crate::error::{CallError, Result};
use crate::schedule::{Cell, Placement, Schedule};

/// How many rounds may be under way at once.
pub(super) const ROUNDS: u32 = 2;

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
    /// [`CallError`] for 0 micro-batches.
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
    pub(super) fn rounds(&self) -> u32 {
        self.rounds
    }

    /// The number of a round's first micro-batch, and its schedule.
    pub(super) fn round(&self, round: u32) -> (u32, &Schedule) {
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
    Ok(Schedule::from_forwards(
        "forward passes",
        placement.clone(),
        micro_batches,
        rows,
    )?)
}
