//! Backwards in micro-batch order, in which weight gradients are added up.

use crate::id::{MicroBatch, Rank, StageId};
use crate::schedule::{Action, Cell, Pass, Schedule};

impl Schedule {
    /// Whether the backward-inputs of a stage are in micro-batch order.
    pub fn goes_back_in_turn(&self, stage: StageId) -> bool {
        let passes = self.passes(self.rank_of(stage));
        let back = passes.filter(|(pass, cell)| is_back(*pass) && cell.stage == stage);
        back.map(|(_, cell)| cell.micro_batch).eq((0..self.micro_batches()).map(MicroBatch))
    }

    /// Whether each forward of a stage is directly followed by the whole backward of the same micro-batch,
    /// and the micro-batches come in order. So it is at the last stage of `1f1b`.
    pub fn goes_back_at_once(&self, stage: StageId) -> bool {
        let passes: Vec<_> = self.passes(self.rank_of(stage)).collect();
        let of_stage = passes.iter().filter(|(pass, cell)| *pass == Pass::Forward && cell.stage == stage);
        let at_once = passes.windows(2).filter(|pair| match pair {
            [(Pass::Forward, cell), (Pass::Backward, of)] => cell == of && cell.stage == stage,
            _ => false,
        });
        self.goes_back_in_turn(stage) && at_once.count() == of_stage.count()
    }

    /// Whether each rank does all its forwards first, and then the backwards of its stages one after the
    /// other, later stages first. A stage's reduction counts as one of its backwards.
    pub fn goes_back_by_stage(&self) -> bool {
        (0..self.ranks()).map(Rank).all(|rank| {
            let mut latest = None;
            self.actions(rank).iter().all(|action| match *action {
                Action::Compute(Pass::Forward, _) => latest.is_none(),
                Action::Compute(_, Cell { stage, .. }) | Action::Reduce(stage) => {
                    latest.replace(stage).is_none_or(|before| stage <= before)
                }
                Action::Send(..) | Action::Recv(..) | Action::Step(_) => true,
            })
        })
    }

    /// The same schedule with every backward-weight in micro-batch order. A backward-weight that comes too
    /// early moves behind the one before it. A whole backward that comes too early is split first. So the
    /// sums of a step have the same bits under every schedule. A pipeline runs this order; most schedules
    /// have it already. Where the order changes, transfers and reductions are placed again.
    #[must_use]
    pub fn in_turn(self) -> Self {
        let rows: Vec<Vec<_>> = (0..self.ranks()).map(|rank| in_turn(&self, Rank(rank))).collect();
        let mut ranks = (0..).map(Rank).zip(&rows);
        if ranks.all(|(rank, row)| self.passes(rank).eq(row.iter().copied())) {
            return self;
        }
        let still = |pair: &[(Pass, Cell)]| match *pair {
            [(Pass::Forward, cell), (Pass::Backward, _)] if self.is_paired(cell) => Some(cell),
            _ => None,
        };
        let pairs: Vec<Cell> = rows.iter().flat_map(|row| row.windows(2).filter_map(still)).collect();
        let schedule = Self::from_passes(self.name(), self.placement().clone(), self.micro_batches(), rows)
            .and_then(|schedule| schedule.with_pairs(pairs))
            .expect("no pass waits for a backward-weight, so what was in order stays in order")
            .with_offloaded(&self.offloaded);
        match self.has_reductions() {
            true => schedule.for_replicas(2),
            false => schedule,
        }
    }
}

fn is_back(pass: Pass) -> bool {
    matches!(pass, Pass::Backward | Pass::BackwardInput)
}

fn in_turn(schedule: &Schedule, rank: Rank) -> Vec<(Pass, Cell)> {
    let mut next = vec![0; schedule.stages() as usize];
    let mut waiting: Vec<Cell> = Vec::new();
    let mut row = Vec::new();
    for (pass, cell) in schedule.passes(rank) {
        let stage = cell.stage.index();
        match pass {
            Pass::Forward | Pass::BackwardInput => {
                row.push((pass, cell));
                continue;
            }
            Pass::Backward | Pass::BackwardWeight if next[stage] == cell.micro_batch.0 => {
                row.push((pass, cell))
            }
            Pass::Backward => {
                row.push((Pass::BackwardInput, cell));
                waiting.push(cell);
                continue;
            }
            Pass::BackwardWeight => {
                waiting.push(cell);
                continue;
            }
        }
        next[stage] += 1;
        let due = |next: u32| move |held: &Cell| held.stage == cell.stage && held.micro_batch.0 == next;
        while let Some(place) = waiting.iter().position(due(next[stage])) {
            row.push((Pass::BackwardWeight, waiting.swap_remove(place)));
            next[stage] += 1;
        }
    }
    row
}
