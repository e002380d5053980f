//! A schedule for fewer micro-batches, in the same order.

use crate::id::Rank;
use crate::schedule::{Cell, Pass, Schedule};

impl Schedule {
    /// The same order for only the first `micro_batches`. The passes of later ones are left out. No pass
    /// waits for one of another micro-batch, so what was in order stays in order. For 0 it is
    /// [`Schedule::idle`]. With more than there are, the schedule stays unchanged.
    #[must_use]
    pub fn first(&self, micro_batches: u32) -> Self {
        if micro_batches >= self.micro_batches() {
            return self.clone();
        }
        if micro_batches == 0 {
            return self.idle();
        }
        let row = |rank| {
            let passes = self.passes(Rank(rank));
            passes
                .filter(|(_, cell)| cell.micro_batch.0 < micro_batches)
                .collect()
        };
        let rows: Vec<Vec<(Pass, Cell)>> = (0..self.ranks()).map(row).collect();
        let still = |pair: &[(Pass, Cell)]| match *pair {
            [(Pass::Forward, cell), (Pass::Backward, other)] => {
                (self.is_paired(cell) && cell != other).then_some(cell)
            }
            _ => None,
        };
        let pairs: Vec<Cell> = rows
            .iter()
            .flat_map(|row| row.windows(2).filter_map(still))
            .collect();
        let schedule = Self::from_passes(self.name(), self.placement().clone(), micro_batches, rows)
            .and_then(|schedule| schedule.with_pairs(pairs))
            .expect("no pass waits for one of another micro-batch, so what was in order stays in order");
        match self.has_reductions() {
            true => schedule.for_replicas(2),
            false => schedule,
        }
    }
}
