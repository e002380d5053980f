//! DualPipeV: DualPipe (DeepSeek-AI, arXiv 2412.19437) cut in half. Each rank has two stages, one on the way
//! out and one on the way back (Qi et al., "DualPipe could be better without the Dual", 2025).
//!
//! ```text
//! rank 0 | 0F0 0F1 0F2 3F0 3I0 3W0 3F1 0F3+3B1 --- 3F2+0B0 --- 3B2 --- 3F3+... 0B1 --- 3B3 --- 0I2 0W2 ..
//! rank 1 | ... 1F0 2F0 1F1 2F1 1F2 2B0 --- 2F2+1B0 --- 1F3+2B1 --- 2F3+1B1 --- 2B2 --- 1B2 --- 2I3 1I3 ..
//! ```
//!
//! In the steady state a forward of one stage is paired with a backward of the rank's other stage,
//! `(0F3;3B1)`. A device that can overlap them runs both at once, and the transfers of one hide behind the
//! other. Other devices run them one after the other. Backwards are split where a rank would wait. At the
//! start the split lets the rank before get its gradient sooner. At the end weight gradients fill the gaps.
//!
//! The order needs two micro-batches a rank. With fewer, it is made for that many, and the surplus is left
//! out.

use super::order::{Order, Sizes};
use crate::plan::Costs;
use crate::schedule::MAX_CELLS;
use crate::schedule::{Cell, Pass, Placement};
use crate::{Error, Result};

pub(super) fn dualpipe_v(sizes: Sizes, _: &Costs) -> Result<Order> {
    let Sizes { ranks, micro_batches, .. } = sizes;
    let full = u64::from(micro_batches).max(2 * u64::from(ranks));
    if 2 * u64::from(ranks) * full > MAX_CELLS {
        return Err(Error::plan(format!(
            "schedule dualpipe-v is made for two micro-batches a rank at least, and with {ranks} ranks these \
             are too many; at most 2^23 cells are supported"
        )));
    }
    let rows: Vec<_> =
        (0..ranks).map(|rank| Row::new(ranks, rank, micro_batches).made(full as u32)).collect();
    Ok(Order {
        placement: Placement::vee(ranks)?,
        pairs: rows.iter().flat_map(|row| row.pairs.clone()).collect(),
        passes: rows.into_iter().map(|row| row.passes).collect(),
    })
}

/// One of a rank's two stages: the one on the way out, or the one on the way back.
#[derive(Clone, Copy)]
enum Way {
    Out,
    Back,
}

use Pass::{Backward, BackwardInput, BackwardWeight, Forward};
use Way::{Back, Out};

/// A rank's passes as they are written down. Each takes the next micro-batch of its kind.
struct Row {
    /// How many ranks come before this one and after it, on the way out.
    before: u32,
    behind: u32,
    /// The first micro-batch whose passes are left out.
    micro_batches: u32,
    /// For each stage, the next micro-batch to go forward and the next to go backward.
    forwards: [u32; 2],
    backwards: [u32; 2],
    /// The backward-inputs in order, and how many of them have had their backward-weight.
    inputs: Vec<Cell>,
    weights: usize,
    passes: Vec<(Pass, Cell)>,
    pairs: Vec<Cell>,
}

impl Row {
    fn new(ranks: u32, rank: u32, micro_batches: u32) -> Self {
        Self {
            before: rank,
            behind: ranks - rank - 1,
            micro_batches,
            forwards: [0; 2],
            backwards: [0; 2],
            inputs: Vec::new(),
            weights: 0,
            passes: Vec::new(),
            pairs: Vec::new(),
        }
    }

    /// The parts of the schedule, for this many micro-batches.
    fn made(mut self, full: u32) -> Self {
        let Self { before, behind, .. } = self;
        for _ in 0..2 * behind {
            self.next(Forward, Out);
        }
        for _ in 0..=before {
            self.next(Forward, Out);
            self.next(Forward, Back);
        }
        for _ in 0..behind {
            self.next(BackwardInput, Back);
            self.weight();
            self.next(Forward, Back);
        }
        for round in 0..full - before - 2 * behind - 1 {
            if round == 0 && behind == 0 {
                // The last rank on the way out starts with separate passes, as in DualPipe.
                self.next(Forward, Out);
                self.next(Backward, Back);
            } else {
                self.pair(Out, Back);
            }
            self.pair(Back, Out);
        }
        for _ in 0..behind {
            self.next(Backward, Back);
            self.pair(Back, Out);
        }
        self.last_backwards();
        for _ in 0..behind {
            self.weight();
            self.next(BackwardInput, Out);
        }
        (0..=before).for_each(|_| self.weight());
        self
    }

    /// A backward of each stage in turn. From half of them on, backwards are split and the backward-weights
    /// fill the end.
    fn last_backwards(&mut self) {
        let whole = self.before + 1;
        for backward in 0..2 * (self.before + 1) {
            let pass = if backward < whole { Backward } else { BackwardInput };
            self.next(pass, if backward % 2 == 0 { Back } else { Out });
        }
    }

    /// Takes the next pass of this kind. Returns whether it is to be done.
    fn next(&mut self, pass: Pass, way: Way) -> (Cell, bool) {
        let stage = match way {
            Out => self.before,
            Back => self.before + 2 * self.behind + 1,
        };
        let next = match pass {
            Forward => &mut self.forwards[way as usize],
            _ => &mut self.backwards[way as usize],
        };
        let cell = Cell::new(stage, *next);
        *next += 1;
        if pass == BackwardInput {
            self.inputs.push(cell);
        }
        (cell, self.push(pass, cell))
    }

    /// The backward-weight that has waited longest.
    fn weight(&mut self) {
        self.push(BackwardWeight, self.inputs[self.weights]);
        self.weights += 1;
    }

    fn pair(&mut self, forward: Way, backward: Way) {
        let (cell, forward) = self.next(Forward, forward);
        let (_, backward) = self.next(Backward, backward);
        if forward && backward {
            self.pairs.push(cell);
        }
    }

    fn push(&mut self, pass: Pass, cell: Cell) -> bool {
        let wanted = cell.micro_batch.0 < self.micro_batches;
        if wanted {
            self.passes.push((pass, cell));
        }
        wanted
    }
}
