//! The named schedules.

mod all_forwards_first;
mod dualpipe_v;
pub(crate) mod greedy;
mod one_f_one_b;
mod order;
pub(crate) mod vee;
mod zero_bubble;

use std::ops::RangeInclusive;

use all_forwards_first::{gpipe, looped_bfs};
use dualpipe_v::dualpipe_v;
use one_f_one_b::{interleaved_1f1b, one_f_one_b};
use order::{Maker, Order, Sizes};
use vee::{v_half, v_min, zb_v};
use zero_bubble::{interleaved_zb, zb_2p, zb_h1};

use crate::nearest::nearest;
use crate::plan::Costs;
use crate::schedule::MAX_CELLS;
use crate::schedule::Schedule;
use crate::{Error, Result};

/// A named schedule.
struct Named {
    name: &'static str,
    /// How many stages a rank may have. The smallest number is the default.
    chunks: RangeInclusive<u32>,
    make: Maker,
}

const ONE: RangeInclusive<u32> = 1..=1;
const TWO: RangeInclusive<u32> = 2..=2;
const SEVERAL: RangeInclusive<u32> = 2..=u32::MAX;

const MAKERS: &[Named] = &[
    Named::new("gpipe", ONE, gpipe),
    Named::new("1f1b", ONE, one_f_one_b),
    Named::new("interleaved-1f1b", SEVERAL, interleaved_1f1b),
    Named::new("looped-bfs", SEVERAL, looped_bfs),
    Named::new("zb-h1", ONE, zb_h1),
    Named::new("zb-2p", ONE, zb_2p),
    Named::new("interleaved-zb", SEVERAL, interleaved_zb),
    Named::new("zb-v", TWO, zb_v),
    Named::new("v-half", TWO, v_half),
    Named::new("v-min", TWO, v_min),
    Named::new("dualpipe-v", TWO, dualpipe_v),
];

impl Schedule {
    /// All forwards, then all backwards (GPipe, [arXiv 1811.06965](https://arxiv.org/abs/1811.06965)); one
    /// stage a rank.
    ///
    /// # Errors
    /// [`Error::Plan`] when either number is 0 or their product is above 2^23.
    pub fn gpipe(ranks: u32, micro_batches: u32) -> Result<Self> {
        Self::named("gpipe", ranks, micro_batches)
    }

    /// One forward, one backward after a warm-up (PipeDream-flush, [arXiv
    /// 2006.09503](https://arxiv.org/abs/2006.09503)); one stage a rank. It is as fast as GPipe and holds
    /// less.
    ///
    /// # Errors
    /// [`Error::Plan`] when either number is 0 or their product is above 2^23.
    pub fn one_f_one_b(ranks: u32, micro_batches: u32) -> Result<Self> {
        Self::named("1f1b", ranks, micro_batches)
    }

    /// The schedule of this name for any number of ranks and micro-batches from 1 on. It has the schedule's
    /// default number of stages a rank and is made for [`Costs::default`].
    ///
    /// # Errors
    /// As [`Schedule::make`].
    pub fn named(name: &str, ranks: u32, micro_batches: u32) -> Result<Self> {
        Self::make(name, ranks, None, micro_batches, &Costs::default())
    }

    /// The schedule of this name with `chunks` stages on each rank. `None` takes the schedule's default.
    /// Schedules whose order depends on costs are made for `costs`.
    ///
    /// # Errors
    /// [`Error::Plan`] when there is no such schedule; the message lists all names and the nearest one. Also
    /// when a number is 0 or one that this schedule cannot have, when there are more than 2^23 cells, or when
    /// `costs` are for another number of stages.
    pub fn make(
        name: &str,
        ranks: u32,
        chunks: Option<u32>,
        micro_batches: u32,
        costs: &Costs,
    ) -> Result<Self> {
        let named = Named::find(name)?;
        let sizes = Sizes { ranks, chunks: chunks.unwrap_or(*named.chunks.start()), micro_batches };
        named.check(sizes)?;
        let Order { placement, passes, pairs } = (named.make)(sizes, costs)?;
        Self::from_passes(name, placement, micro_batches, passes)?.with_pairs(pairs)
    }

    /// How many stages a rank may have in the schedule of this name. The smallest number is the default.
    ///
    /// # Errors
    /// [`Error::Plan`] when there is no such schedule.
    pub fn chunks(name: &str) -> Result<RangeInclusive<u32>> {
        Ok(Named::find(name)?.chunks.clone())
    }

    /// The names that [`Schedule::named`] knows.
    pub fn names() -> impl Iterator<Item = &'static str> {
        MAKERS.iter().map(|named| named.name)
    }
}

impl Named {
    const fn new(name: &'static str, chunks: RangeInclusive<u32>, make: Maker) -> Self {
        Self { name, chunks, make }
    }

    fn find(name: &str) -> Result<&'static Self> {
        let named = MAKERS.iter().find(|named| named.name == name);
        named.ok_or_else(|| unknown(name))
    }

    fn check(&self, sizes: Sizes) -> Result<()> {
        let Sizes { ranks, chunks, micro_batches } = sizes;
        let cells = [ranks, chunks, micro_batches];
        let cells = cells.iter().fold(1, |cells: u64, &size| cells.saturating_mul(size.into()));
        let problem = if ranks == 0 || micro_batches == 0 {
            format!(
                "needs at least 1 rank and 1 micro-batch; it was given {ranks} ranks and {micro_batches} \
                 micro-batches"
            )
        } else if !self.chunks.contains(&chunks) {
            let allowed = match self.chunks.clone().into_inner() {
                (least, most) if least == most => format!("{least} stages a rank"),
                (least, u32::MAX) => format!("at least {least} stages a rank"),
                (least, most) => format!("{least} to {most} stages a rank"),
            };
            format!("has {allowed}; it was given {chunks} chunks")
        } else if cells > MAX_CELLS {
            format!(
                "with {ranks} ranks x {chunks} chunks x {micro_batches} micro-batches is too large: their \
                 product may be 8,388,608 (2^23) at most"
            )
        } else {
            return Ok(());
        };
        Err(Error::plan(format!("schedule {} {problem}", self.name)))
    }
}

fn unknown(name: &str) -> Error {
    let nearest = nearest(name, Schedule::names());
    let nearest = nearest.map_or(String::new(), |nearest| format!(", did you mean {nearest}?"));
    let known: Vec<_> = Schedule::names().collect();
    Error::plan(format!("there is no schedule {name:?}{nearest} (known: {})", known.join(", ")))
}
