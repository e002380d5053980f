//! One step of all replicas of a pipeline. They meet where they add up their gradients.

use crate::id::{MicroBatch, Rank};
use crate::plan::simulate::simulate_from;
use crate::plan::{Clock, Costs, Played, Replicas, Simulation};
use crate::schedule::{Cell, LinkKind, Schedule, Timeline};
use crate::{Error, Result};

/// Simulates a step of all replicas. A reduction of a stage starts when the last replica is ready for it.
/// Gives one simulation for each of [`Replicas::schedules`], in that order: replicas with the same schedule
/// go alike.
///
/// # Errors
/// As for [`simulate`](crate::plan::simulate). [`Error::Plan`] when replicas with different
/// schedules wait for each other for ever, which may happen on ordered links only.
pub fn simulate_replicas(replicas: &Replicas, costs: &Costs, links: LinkKind) -> Result<Vec<Simulation>> {
    let starts = reduction_starts(replicas, costs, links)?;
    let schedules = replicas.schedules();
    schedules.map(|(schedule, _)| simulate_from(schedule, costs, links, &starts)).collect()
}

impl Replicas {
    /// When each pass, transfer and reduction of a replica starts and ends. Its micro-batches have their
    /// numbers in the batch.
    ///
    /// # Errors
    /// As for [`simulate_replicas`].
    ///
    /// # Panics
    /// When there is no such replica.
    pub fn timeline(&self, replica: u32, costs: &Costs, links: LinkKind) -> Result<Timeline> {
        let starts = reduction_starts(self, costs, links)?;
        let mut timeline = self.schedule(replica).timeline_from(costs, links, &starts)?;
        let first = self.share(replica).start;
        let numbered = |cell: &mut Cell| cell.micro_batch = MicroBatch(cell.micro_batch.0 + first);
        let passes = timeline.ranks.iter_mut().flatten();
        passes.for_each(|pass| numbered(&mut pass.cell));
        let transfers = timeline.transfers.iter_mut();
        transfers.for_each(|transfer| numbered(&mut transfer.cell));
        Ok(timeline)
    }

    /// The same for all replicas: the rows of replica 0, then the rows of replica 1, and so on. The rank of a
    /// transfer, a reduction or a copy is the number of its row.
    ///
    /// # Errors
    /// As for [`simulate_replicas`].
    pub fn whole_timeline(&self, costs: &Costs, links: LinkKind) -> Result<Timeline> {
        let mut whole = Timeline::default();
        for replica in 0..self.count() {
            let mut one = self.timeline(replica, costs, links)?;
            let row = |rank: &mut Rank| rank.0 += replica * self.ranks();
            for transfer in &mut one.transfers {
                row(&mut transfer.from);
                row(&mut transfer.to);
            }
            one.reductions.iter_mut().for_each(|reduction| row(&mut reduction.rank));
            one.copies.iter_mut().for_each(|copy| row(&mut copy.rank));
            whole.ranks.extend(one.ranks);
            whole.transfers.extend(one.transfers);
            whole.reductions.extend(one.reductions);
            whole.copies.extend(one.copies);
        }
        Ok(whole)
    }
}

/// When each stage's reduction starts: when the last replica is ready for it. Empty if all replicas have the
/// same schedule, and so are ready at the same time.
///
/// On ordered links a later reduction delays what is behind it in the queues. So the times are found by
/// repetition. Each round makes at least one more of them final.
fn reduction_starts(replicas: &Replicas, costs: &Costs, links: LinkKind) -> Result<Vec<f64>> {
    let schedules: Vec<&Schedule> = replicas.schedules().map(|(schedule, _)| schedule).collect();
    if schedules.len() == 1 {
        return Ok(Vec::new());
    }
    let stages = replicas.largest().stages() as usize;
    let mut starts = vec![0.0; stages];
    for _ in 0..=stages + 1 {
        let before = starts.clone();
        for schedule in &schedules {
            let clock = Clock::new(schedule, costs, links)?;
            clock.reductions_from(&before).step(|played| {
                if let Played::Reduction(reduction) = played {
                    let start = &mut starts[reduction.stage.index()];
                    *start = reduction.start.max(*start);
                }
            })?;
        }
        if starts == before {
            return Ok(starts);
        }
    }
    let shares: Vec<_> = schedules.iter().map(|schedule| schedule.micro_batches()).collect();
    Err(Error::plan(format!(
        "on ordered links the replicas wait for each other for ever: with {shares:?} micro-batches they \
         reduce their stages in other orders; give each replica as many, or take buffered links"
    )))
}
