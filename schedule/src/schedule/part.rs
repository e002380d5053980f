//! The part of a schedule that belongs to some of its micro-batches.

use std::ops::Range;

use crate::id::{MicroBatch, Rank};
use crate::schedule::{Cell, Pass, Schedule};

impl Schedule {
    /// The passes of these micro-batches, in the same order, with micro-batches counted from 0. Transfers are
    /// placed again. A replica of the pipeline with a share of the micro-batches runs it. Without any
    /// micro-batch it is [`Schedule::idle`].
    ///
    /// # Panics
    /// When the schedule does not have all of these micro-batches.
    #[must_use]
    pub fn part(&self, micro_batches: Range<u32>) -> Self {
        assert!(
            micro_batches.end <= self.micro_batches(),
            "{} has {} micro-batches, not {micro_batches:?}",
            self.name(),
            self.micro_batches()
        );
        if micro_batches.len() == self.micro_batches() as usize {
            return self.clone();
        }
        if micro_batches.is_empty() {
            return self.idle();
        }
        let inside = |&(pass, cell): &(Pass, Cell)| {
            let micro_batch = MicroBatch(cell.micro_batch.0.checked_sub(micro_batches.start)?);
            (micro_batch.0 < micro_batches.len() as u32).then_some((pass, Cell { micro_batch, ..cell }))
        };
        let row = |rank| self.passes(Rank(rank)).filter_map(|pass| inside(&pass)).collect();
        let rows: Vec<Vec<_>> = (0..self.ranks()).map(row).collect();
        let is_still_pair = |pair: &[(Pass, Cell)]| match *pair {
            [(Pass::Forward, cell), (Pass::Backward, other)] if cell != other => {
                let micro_batch = MicroBatch(cell.micro_batch.0 + micro_batches.start);
                self.is_paired(Cell { micro_batch, ..cell }).then_some(cell)
            }
            _ => None,
        };
        let pairs: Vec<Cell> = rows.iter().flat_map(|row| row.windows(2).filter_map(is_still_pair)).collect();
        let offloaded = self.offloaded.iter();
        let offloaded = offloaded.filter_map(|&cell| inside(&(Pass::Forward, cell)).map(|(_, cell)| cell));
        let count = micro_batches.len() as u32;
        let schedule = Self::from_passes(self.name(), self.placement().clone(), count, rows)
            .and_then(|schedule| schedule.with_pairs(pairs))
            .expect("micro-batches do not wait for each other, so an order without some of them ends too")
            .with_offloaded(&offloaded.collect());
        match self.has_reductions() {
            true => schedule.for_replicas(2),
            false => schedule,
        }
    }
}
