//! Forward passes over any number of micro-batches: one short schedule, run again and again.

use crate::error::{CallError, Result};
use crate::schedule::{Cell, Placement, Schedule};

/// How many rounds may be under way at once.
pub(super) const ROUNDS: u32 = 2;

/// Forward passes over any number of micro-batches, in rounds of as many as there are stages.
///
/// Two rounds are under way at most: enough that every rank has work, and few enough that a light first stage does not run
/// ahead of a heavy one and pile up wires, however many micro-batches there are.
#[derive(Debug)]
pub(crate) struct Forwards {
    round: Schedule,
    /// The last round, where it is a shorter one.
    rest: Option<Schedule>,
    rounds: u32,
}

impl Forwards {
    /// Forward passes over this many micro-batches, of stages that are placed so.
    ///
    /// # Errors
    /// [`CallError::NoMicroBatches`].
    pub(crate) fn new(placement: &Placement, micro_batches: u32) -> Result<Self> {
        if micro_batches == 0 {
            return Err(CallError::NoMicroBatches.into());
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

    /// A round's schedule, and the number of its first micro-batch.
    pub(super) fn round(&self, round: u32) -> (u32, &Schedule) {
        let first = round * self.round.micro_batches();
        match &self.rest {
            Some(rest) if round + 1 == self.rounds => (first, rest),
            _ => (first, &self.round),
        }
    }
}

/// Each rank does all micro-batches of a stage before it goes on to its next stage, so that ranks with several stages do
/// not wait for each other at each micro-batch.
fn round(placement: &Placement, micro_batches: u32) -> Result<Schedule> {
    let mut rows = vec![Vec::new(); placement.ranks() as usize];
    for (stage, rank) in (0..).zip(placement.iter()) {
        rows[rank.index()].extend((0..micro_batches).map(|micro_batch| Cell::new(stage, micro_batch)));
    }
    Schedule::from_forwards("forward passes", placement.clone(), micro_batches, rows)
}
