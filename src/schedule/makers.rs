//! The schedules that have a name.

use crate::nearest::nearest;
use crate::schedule::gpipe::gpipe;
use crate::schedule::one_f_one_b::one_f_one_b;
use crate::schedule::program::MAX_CELLS;
use crate::schedule::{Cell, Pass, Placement, Schedule};
use crate::{Error, Result};

/// What a maker gives: where the stages live, and each rank's compute passes in order.
pub(super) struct Made {
    pub(super) placement: Placement,
    pub(super) passes: Vec<Vec<(Pass, Cell)>>,
}

/// Makes a schedule's passes for some ranks and micro-batches, each at least 1.
type Maker = fn(ranks: u32, micro_batches: u32) -> Result<Made>;

const MAKERS: &[(&str, Maker)] = &[("gpipe", gpipe), ("1f1b", one_f_one_b)];

impl Schedule {
    /// All forwards, then all backwards (GPipe, [arXiv 1811.06965](https://arxiv.org/abs/1811.06965)); one
    /// stage a rank.
    ///
    /// # Errors
    /// [`Error::Invalid`] when either number is 0 or their product is above 2^23.
    pub fn gpipe(ranks: u32, micro_batches: u32) -> Result<Self> {
        Self::named("gpipe", ranks, micro_batches)
    }

    /// One forward, one backward after a warm-up (PipeDream-flush, [arXiv
    /// 2006.09503](https://arxiv.org/abs/2006.09503)); one stage a rank. As fast as GPipe and holds less.
    ///
    /// # Errors
    /// [`Error::Invalid`] when either number is 0 or their product is above 2^23.
    pub fn one_f_one_b(ranks: u32, micro_batches: u32) -> Result<Self> {
        Self::named("1f1b", ranks, micro_batches)
    }

    /// The schedule of this name, for any number of ranks and micro-batches from 1 on.
    ///
    /// # Errors
    /// [`Error::Invalid`] when there is no such schedule (the message lists those there are and the nearest),
    /// when either number is 0 or their product is above 2^23.
    pub fn named(name: &str, ranks: u32, micro_batches: u32) -> Result<Self> {
        let (_, maker) = MAKERS
            .iter()
            .find(|(known, _)| *known == name)
            .ok_or_else(|| unknown(name))?;
        if ranks == 0 || micro_batches == 0 {
            return Err(Error::Invalid(format!(
                "schedule {name} needs at least 1 rank and 1 micro-batch; it was given {ranks} ranks and \
                 {micro_batches} micro-batches"
            )));
        }
        if u64::from(ranks) * u64::from(micro_batches) > MAX_CELLS {
            return Err(Error::Invalid(format!(
                "schedule {name} with {ranks} ranks x {micro_batches} micro-batches is too large; at most \
                 2^23 cells \
                 are supported"
            )));
        }
        let Made { placement, passes } = maker(ranks, micro_batches)?;
        Self::from_passes(name, placement, micro_batches, passes)
    }

    /// The names that [`Schedule::named`] knows.
    pub fn names() -> impl Iterator<Item = &'static str> {
        MAKERS.iter().map(|(name, _)| *name)
    }
}

fn unknown(name: &str) -> Error {
    let meant = nearest(name, Schedule::names())
        .map_or(String::new(), |nearest| format!(", did you mean {nearest}?"));
    let known: Vec<_> = Schedule::names().collect();
    Error::Invalid(format!(
        "there is no schedule {name:?}{meant} (known: {})",
        known.join(", ")
    ))
}
