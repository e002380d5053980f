//! The trace of a step on one rank: its passes, its sends and its receives.

use std::collections::HashMap;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::id::{Rank, StageId};
use crate::mesh::{Axis, Coordinate, Mesh};
use crate::schedule::{
    Cell, Flow, Pass, Placement, Timed, TimedReduction, TimedShardWait, TimedTransfer, Timeline,
};

/// One rank's record of the current step.
#[derive(Debug)]
pub(super) struct RankTrace {
    origin: Instant,
    /// Whether times are marks of a device's clock, until [`set_seconds`](RankTrace::set_seconds) converts
    /// them.
    by_marks: bool,
    /// When the current pass had received all that it waited for.
    began: f64,
    /// The device's sums over replicas: at which of its marks each began and ended.
    sums: Vec<(StageId, [usize; 2])>,
    pub(super) record: Record,
}

/// One rank's record of a step. All ranks count seconds from the same instant.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The passes, in order.
    pub(crate) passes: Vec<Timed>,
    /// When each wire was sent. The cell is the sender's.
    pub(crate) sent: Vec<((Flow, Cell), f64)>,
    /// When each wire was taken. The cell is the sender's.
    pub(crate) taken: Vec<((Flow, Cell), f64)>,
    /// When the sum of each stage's gradients over its replicas began and ended.
    pub(crate) reductions: Vec<(StageId, [f64; 2])>,
    /// The shards for which it waited, and when each wait began and ended.
    pub(crate) shard_waits: Vec<(u32, [f64; 2])>,
}

impl RankTrace {
    /// An empty record of a step that began at `origin`.
    pub(super) fn new(origin: Instant, by_marks: bool) -> Self {
        Self { origin, by_marks, began: 0.0, sums: Vec::new(), record: Record::default() }
    }

    /// The time of the host, or the given mark.
    fn now(&self, mark: usize) -> f64 {
        match self.by_marks {
            true => mark as f64,
            false => self.seconds(),
        }
    }

    /// Seconds since the origin.
    pub(super) fn seconds(&self) -> f64 {
        self.origin.elapsed().as_secs_f64()
    }

    /// A pass begins, or has received what it waited for.
    pub(super) fn begin(&mut self, mark: usize) {
        self.began = self.now(mark);
    }

    /// Turns marks into seconds since the origin.
    pub(super) fn set_seconds(&mut self, seconds: impl Fn(usize) -> Result<f64>) -> Result<()> {
        // Other reductions are the host's: their times are seconds already.
        for (stage, [start, end]) in self.sums.drain(..) {
            let times = [seconds(start)?, seconds(end)?];
            self.record.reductions.push((stage, times));
        }
        let Record { passes, sent, taken, .. } = &mut self.record;
        let passes = passes.iter_mut().flat_map(|pass| [&mut pass.start, &mut pass.end]);
        let wires = sent.iter_mut().chain(taken).map(|(_, at)| at);
        for at in passes.chain(wires) {
            *at = seconds(*at as usize)?;
        }
        Ok(())
    }

    /// The current pass has ended. `before`: the bytes held when it began; `held`: now; `most`: the most
    /// bytes held meanwhile.
    pub(super) fn end(&mut self, pass: Pass, cell: Cell, mark: usize, [before, held, most]: [u64; 3]) {
        let end = self.now(mark);
        self.record.passes.push(Timed {
            pass,
            cell,
            start: self.began,
            end,
            before: before as f64,
            held: held as f64,
            most: most as f64,
        });
    }

    /// Inside of passes it waited for these shards.
    pub(super) fn add_shard_waits(&mut self, waits: &[(u32, [Instant; 2])]) {
        let seconds = |at: Instant| at.saturating_duration_since(self.origin).as_secs_f64();
        self.record.shard_waits = waits.iter().map(|(shard, times)| (*shard, times.map(seconds))).collect();
    }

    /// A wire was sent.
    pub(super) fn sent(&mut self, flow: Flow, cell: Cell, mark: usize) {
        let now = self.now(mark);
        self.record.sent.push(((flow, cell), now));
    }

    /// The sum of a stage's gradients over its replicas begins.
    pub(super) fn reduction_starts(&mut self, stage: StageId) {
        let now = self.seconds();
        self.record.reductions.push((stage, [now; 2]));
    }

    /// The sum of a stage's gradients over its replicas is there.
    pub(super) fn reduction_ends(&mut self, stage: StageId) {
        let now = self.seconds();
        let mut begun = self.record.reductions.iter_mut();
        if let Some((_, [_, end])) = begun.find(|(of, _)| *of == stage) {
            *end = now;
        }
    }

    /// The device begins with the sum of a stage's gradients over its replicas.
    pub(super) fn sum_starts(&mut self, stage: StageId, mark: usize) {
        self.sums.push((stage, [mark; 2]));
    }

    /// The device has done that sum at this mark.
    pub(super) fn sum_ends(&mut self, stage: StageId, mark: usize) {
        if let Some((_, [_, end])) = self.sums.iter_mut().find(|(of, _)| *of == stage) {
            *end = mark;
        }
    }

    /// The wire for this cell, the last that was waited for, was taken.
    pub(super) fn taken(&mut self, flow: Flow, cell: Cell) {
        if let Some(stage) = flow.before(cell.stage) {
            let wire = (flow, Cell { stage, ..cell });
            self.record.taken.push((wire, self.began));
        }
    }
}

/// The timeline of all ranks, from their records in the order of their numbers. Replica 0 has the first rows,
/// then replica 1, and so on; each of its ranks has a row for each shard. Micro-batches have their numbers in
/// the batch.
pub(crate) fn timeline(placement: &Placement, mesh: &Mesh, traces: Vec<Record>) -> Timeline {
    let mut rows: Vec<(Coordinate, Record)> =
        mesh.world().map(|rank| mesh.coordinate(rank)).zip(traces).collect();
    let taken: HashMap<_, _> = rows
        .iter()
        .flat_map(|(at, trace)| trace.taken.iter().map(|(wire, end)| ((at.shard, *wire), *end)))
        .collect();
    rows.sort_by_key(|(at, _)| *at);
    let row = |at: &Coordinate, stage: StageId| {
        let rank = placement.rank(stage).expect("the placement has this stage");
        Rank((at.replica * mesh.size(Axis::Pipeline) + rank.0) * mesh.size(Axis::Tensor) + at.shard)
    };
    let transfer = |at: &Coordinate, ((flow, cell), start): ((Flow, Cell), f64)| {
        let to = flow.after(cell.stage)?;
        // Devices' clocks are a few microseconds off the host's. A wire must not be taken before it is sent.
        let end = taken.get(&(at.shard, (flow, cell)))?.max(start);
        Some(TimedTransfer { flow, cell, from: row(at, cell.stage), to: row(at, to), start, end })
    };
    let mut transfers: Vec<_> = rows
        .iter()
        .flat_map(|(at, trace)| trace.sent.iter().filter_map(|sent| transfer(at, *sent)))
        .collect();
    transfers.sort_by(|a, b| a.start.total_cmp(&b.start));
    let reduction = |at: &Coordinate, (stage, [start, end]): (StageId, [f64; 2])| TimedReduction {
        stage,
        rank: row(at, stage),
        start,
        end,
    };
    let mut reductions: Vec<_> =
        rows.iter().flat_map(|(at, trace)| trace.reductions.iter().map(|of| reduction(at, *of))).collect();
    reductions.sort_by(|a, b| a.start.total_cmp(&b.start));
    let shard_waits = (0..).map(Rank).zip(&rows).flat_map(|(rank, (_, trace))| {
        let waits = trace.shard_waits.iter();
        waits.map(move |&(shard, [start, end])| TimedShardWait { rank, shard, start, end })
    });
    let shard_waits = shard_waits.collect();
    let ranks = rows.into_iter().map(|(_, trace)| trace.passes).collect();
    Timeline { ranks, transfers, reductions, shard_waits, ..Timeline::default() }
}
