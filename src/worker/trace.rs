//! What a rank writes down of a step when it is asked to: its passes and its ends of the transfers.

use std::collections::HashMap;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::schedule::{Cell, Flow, Pass, Schedule, Timed, TimedTransfer, Timeline};

/// One rank's record of a step, being written.
#[derive(Debug)]
pub(super) struct RankTrace {
    origin: Instant,
    /// Whether times are marks of a device's clock, until they are [told](RankTrace::tell_times).
    by_marks: bool,
    /// When the pass under way had all that it waited for.
    began: f64,
    pub(super) record: Record,
}

/// One rank's record of a step. All ranks count from the same instant.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The passes, in order.
    pub(crate) passes: Vec<Timed>,
    /// When each wire was handed over, by the cell that sends it.
    pub(crate) sent: Vec<((Flow, Cell), f64)>,
    /// When each wire was taken up, by the cell that sends it.
    pub(crate) taken: Vec<((Flow, Cell), f64)>,
}

impl RankTrace {
    /// An empty record of a step that began at `origin`.
    pub(super) fn new(origin: Instant, by_marks: bool) -> Self {
        Self {
            origin,
            by_marks,
            began: 0.0,
            record: Record::default(),
        }
    }

    /// The time of the host, or this mark.
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

    /// A pass begins, or has what it waited for.
    pub(super) fn begin(&mut self, mark: usize) {
        self.began = self.now(mark);
    }

    /// Turns marks into seconds since the origin.
    pub(super) fn tell_times(&mut self, seconds: impl Fn(usize) -> Result<f64>) -> Result<()> {
        let Record { passes, sent, taken } = &mut self.record;
        let passes = passes
            .iter_mut()
            .flat_map(|pass| [&mut pass.start, &mut pass.end]);
        let wires = sent.iter_mut().chain(taken).map(|(_, at)| at);
        for at in passes.chain(wires) {
            *at = seconds(*at as usize)?;
        }
        Ok(())
    }

    /// The pass that began last has ended; this is held now, and was held at most from the pass before on.
    pub(super) fn end(&mut self, pass: Pass, cell: Cell, mark: usize, [held, most]: [u64; 2]) {
        let end = self.now(mark);
        self.record.passes.push(Timed {
            pass,
            cell,
            start: self.began,
            end,
            held: held as f64,
            most: most as f64,
        });
    }

    /// A wire is handed over.
    pub(super) fn sent(&mut self, flow: Flow, cell: Cell, mark: usize) {
        let now = self.now(mark);
        self.record.sent.push(((flow, cell), now));
    }

    /// The wire for this cell, which was waited for last, has been taken up.
    pub(super) fn taken(&mut self, flow: Flow, cell: Cell) {
        if let Some(stage) = flow.before(cell.stage) {
            let wire = (flow, Cell { stage, ..cell });
            self.record.taken.push((wire, self.began));
        }
    }
}

/// The step of all ranks, from their records in rank order.
pub(crate) fn timeline(schedule: &Schedule, traces: Vec<Record>) -> Timeline {
    let taken: HashMap<_, _> = traces
        .iter()
        .flat_map(|trace| trace.taken.iter().copied())
        .collect();
    let transfer = |&((flow, cell), start): &((Flow, Cell), f64)| {
        let to = flow.after(cell.stage)?;
        // Devices' clocks are set by the host's, which is some microseconds off: nothing is taken up before it is there.
        let end = taken.get(&(flow, cell))?.max(start);
        let (from, to) = (schedule.rank_of(cell.stage), schedule.rank_of(to));
        Some(TimedTransfer {
            flow,
            cell,
            from,
            to,
            start,
            end,
        })
    };
    let mut transfers: Vec<_> = traces
        .iter()
        .flat_map(|trace| &trace.sent)
        .filter_map(transfer)
        .collect();
    transfers.sort_by(|a, b| a.start.total_cmp(&b.start));
    let ranks = traces.into_iter().map(|trace| trace.passes).collect();
    Timeline {
        ranks,
        transfers,
        ..Timeline::default()
    }
}
