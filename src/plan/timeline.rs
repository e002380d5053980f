//! When each pass and each transfer of a schedule starts and ends, by its costs.

use crate::Result;
use crate::plan::{Clock, Costs, Played};
use crate::schedule::{Links, Schedule, Timeline};

impl Schedule {
    /// When each pass, transfer and reduction starts and ends, if every one starts as early as it can.
    ///
    /// A transfer or a reduction keeps no rank from computing. On buffered links they do not wait for each other; on ordered
    /// links a transfer occupies the queues of both its ranks, and a reduction the queue of its rank.
    ///
    /// # Errors
    /// [`Error`](crate::Error) when the costs are of another number of stages, or the schedule does not
    /// hold on these links.
    pub fn timeline(&self, costs: &Costs, links: Links) -> Result<Timeline> {
        let mut timeline = Timeline {
            ranks: vec![Vec::new(); self.ranks() as usize],
            transfers: Vec::new(),
            reductions: Vec::new(),
        };
        Clock::new(self, costs, links)?.step(|played| match played {
            Played::Pass(rank, timed) => timeline.ranks[rank.index()].push(timed),
            Played::Transfer(transfer) => timeline.transfers.push(transfer),
            Played::Reduction(reduction) => timeline.reductions.push(reduction),
        })?;
        Ok(timeline)
    }
}
