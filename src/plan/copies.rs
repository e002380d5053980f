//! The copies of a step to the host and back, and what passes wait for because of them.

use std::collections::BTreeMap;

use crate::id::Rank;
use crate::plan::StageCost;
use crate::plan::kept::Kept;
use crate::schedule::{Cell, Move, MoveStep, Schedule};

/// The copies of all ranks. Those of one rank in one direction go one after the other.
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
        let of = |rank| OfRank {
            moves: schedule.moves(Rank(rank)),
            ..OfRank::default()
        };
        Self {
            ranks: (0..schedule.ranks()).map(of).collect(),
        }
    }

    /// A step begins.
    pub(super) fn begin_step(&mut self) {
        for rank in &mut self.ranks {
            (rank.done, rank.passes) = (0, 0);
            rank.ends.clear();
        }
    }

    /// Does what a rank moves before its next pass, from this time on. Returns when it can go on.
    pub(super) fn before_pass(
        &mut self,
        rank: usize,
        mut now: f64,
        stages: &[StageCost],
        kept: &mut Kept,
    ) -> f64 {
        let of = &mut self.ranks[rank];
        while let Some(next) = of.moves.get(of.done).filter(|next| next.before <= of.passes) {
            let stage = next.cell.stage.index();
            match next.step {
                MoveStep::Free => {
                    now = now.max(of.ends[&next.cell]);
                    kept.count_away(stage, true);
                }
                MoveStep::Out => {
                    of.out = of.out.max(now) + stages[stage].copy;
                    of.ends.insert(next.cell, of.out);
                }
                MoveStep::Back => {
                    of.back = of.back.max(now) + stages[stage].copy;
                    of.ends.insert(next.cell, of.back);
                    kept.count_away(stage, false);
                }
            }
            of.done += 1;
        }
        of.passes += 1;
        now
    }

    /// When the copy that a backward of this cell waits for ends. 0 if there is none.
    pub(super) fn end(&self, rank: usize, cell: Cell) -> f64 {
        self.ranks[rank].ends.get(&cell).copied().unwrap_or(0.0)
    }
}
