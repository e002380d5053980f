//! The copies of a step to the host and back, and what passes wait for because of them.

use std::collections::BTreeMap;

use crate::id::Rank;
use crate::plan::StageCost;
use crate::plan::held_activations::HeldActivations;
use crate::schedule::{Cell, Move, MoveStep, Schedule, TimedCopy};

/// The copies of all ranks. Copies of one rank in one direction go one after the other.
pub(super) struct Copies {
    ranks: Vec<OfRank>,
}

#[derive(Default)]
struct OfRank {
    moves: Vec<Move>,
    /// How many moves of the step are done, and how many passes.
    done: usize,
    passes: usize,
    /// When the last copy to the host ends, and the last one back.
    out: f64,
    back: f64,
    /// When the latest copy of each cell ends.
    ends: BTreeMap<Cell, f64>,
}

impl Copies {
    pub(super) fn of(schedule: &Schedule) -> Self {
        let of = |rank| OfRank { moves: schedule.moves(Rank(rank)), ..OfRank::default() };
        Self { ranks: (0..schedule.ranks()).map(of).collect() }
    }

    /// A step begins.
    pub(super) fn begin_step(&mut self) {
        for rank in &mut self.ranks {
            (rank.done, rank.passes) = (0, 0);
            rank.ends.clear();
        }
    }

    /// Does what a rank moves before its next pass, from this time on, and shows each copy to `visit`.
    /// Returns when the rank can go on.
    pub(super) fn before_pass(
        &mut self,
        rank: usize,
        mut now: f64,
        stages: &[StageCost],
        kept: &mut HeldActivations,
        visit: &mut impl FnMut(TimedCopy),
    ) -> f64 {
        let of = &mut self.ranks[rank];
        while let Some(next) = of.moves.get(of.done).filter(|next| next.before <= of.passes) {
            let Move { step, cell, .. } = *next;
            let stage = cell.stage.index();
            of.done += 1;
            let stream = match step {
                MoveStep::Free => {
                    now = now.max(of.ends[&cell]);
                    kept.count_away(stage, true);
                    continue;
                }
                MoveStep::Out => &mut of.out,
                MoveStep::Back => {
                    kept.count_away(stage, false);
                    &mut of.back
                }
            };
            let start = stream.max(now);
            *stream = start + stages[stage].copy;
            of.ends.insert(cell, *stream);
            visit(TimedCopy { rank: Rank(rank as u32), cell, step, start, end: *stream });
        }
        of.passes += 1;
        now
    }

    /// When the copy that a backward of this cell waits for ends. 0 if there is none.
    pub(super) fn end(&self, rank: usize, cell: Cell) -> f64 {
        self.ranks[rank].ends.get(&cell).copied().unwrap_or(0.0)
    }
}
