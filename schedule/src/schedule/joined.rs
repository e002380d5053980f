//! A schedule whose halves of backward are joined where that costs nothing.

use crate::id::{Rank, StageId};
use crate::schedule::{Pass, Schedule};

impl Schedule {
    /// The same schedule under this name, with whole backwards in some stages: each where its backward-input
    /// was. The backward-weights of these stages must take no time. Then the step takes as long as before,
    /// and nothing is held between the halves.
    pub(crate) fn joined(&self, name: &str, whole: impl Fn(StageId) -> bool) -> Self {
        let row = |rank| {
            let passes = self.passes(Rank(rank));
            let passes = passes.filter_map(|(pass, cell)| match pass {
                Pass::BackwardWeight if whole(cell.stage) => None,
                Pass::BackwardInput if whole(cell.stage) => Some((Pass::Backward, cell)),
                _ => Some((pass, cell)),
            });
            passes.collect()
        };
        let rows = (0..self.ranks()).map(row).collect();
        Self::from_passes(name, self.placement().clone(), self.micro_batches(), rows)
            .and_then(|schedule| schedule.with_pairs(self.pairs.iter().copied()))
            .expect("no pass waits for a backward-weight, and none is put between a pair")
    }
}
