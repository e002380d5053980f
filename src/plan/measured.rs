//! Costs from a step that was measured.

use std::collections::{BTreeMap, HashMap};

use crate::Result;
use crate::error::PlanError;
use crate::id::StageId;
use crate::plan::{Costs, StageCost};
use crate::schedule::{Cell, Flow, Pass, Timed, TimedTransfer, Timeline};

impl Costs {
    /// What the passes of these steps cost: for each stage and pass the median over all its micro-batches. What a schedule
    /// gives at these costs is what it would have given, had every pass taken as long as it usually does.
    ///
    /// A backward in one piece counts half as backward-input and half as backward-weight; where a stage has those in two halves too,
    /// they tell how it divides. A transfer takes the median of those
    /// for which their receiver stood waiting; if none did, the shortest of all. The update of the parameters and the reduction count nothing.
    ///
    /// # Errors
    /// [`PlanError::Unmeasured`] when a stage has no forward or no backward.
    pub fn measured<'a>(timelines: impl IntoIterator<Item = &'a Timeline>) -> Result<Self> {
        let timelines: Vec<&Timeline> = timelines.into_iter().collect();
        let mut passes: BTreeMap<(u32, Pass), Samples> = BTreeMap::new();
        for row in timelines.iter().flat_map(|timeline| &timeline.ranks) {
            let before = [0.0].into_iter().chain(row.iter().map(|timed| timed.held));
            for (timed, before) in row.iter().zip(before) {
                let samples = passes.entry((timed.cell.stage.0, timed.pass)).or_default();
                samples.times.push(timed.end - timed.start);
                samples.changes.push(timed.held - before);
                let above = timed.most > before.max(timed.held);
                samples
                    .restored
                    .push(if above { timed.most - before } else { 0.0 });
            }
        }
        let stages = passes.keys().map(|(stage, _)| stage + 1).max().unwrap_or(0);
        let costs = (0..stages)
            .map(|stage| cost(&passes, stage))
            .collect::<Result<_>>()?;
        Self::each(costs, comm(&timelines))
    }
}

/// What was measured of one pass of one stage.
#[derive(Debug, Default)]
struct Samples {
    times: Vec<f64>,
    /// How much more was held after it than before it.
    changes: Vec<f64>,
    /// How much more was held during it than before it, where that was more than after it too.
    restored: Vec<f64>,
}

fn cost(passes: &BTreeMap<(u32, Pass), Samples>, stage: u32) -> Result<StageCost> {
    let of = |pass| passes.get(&(stage, pass));
    let time = |pass| of(pass).map(|samples| usual(&samples.times));
    let missing = |pass| PlanError::Unmeasured {
        stage: StageId(stage),
        pass,
    };
    let whole = time(Pass::Backward);
    let half = whole.map(|time| time / 2.0);
    let count = |pass| of(pass).map_or(0.0, |samples| samples.times.len() as f64);
    let (halves, wholes) = (count(Pass::BackwardInput), count(Pass::Backward));
    let both = time(Pass::BackwardInput)
        .zip(time(Pass::BackwardWeight))
        .map(|(input, weight)| input + weight);
    // Where a stage has backwards of both kinds, its halves are scaled to what they take together on average.
    let scale = match (whole, both) {
        (Some(whole), Some(both)) if both > 0.0 => (wholes * whole / both + halves) / (wholes + halves),
        _ => 1.0,
    };
    let saved = of(Pass::Forward).map_or(0.0, |samples| usual(&samples.changes).max(0.0));
    let change = of(Pass::BackwardInput).map(|samples| usual(&samples.changes));
    let backward = of(Pass::BackwardInput).or(of(Pass::Backward));
    Ok(StageCost {
        forward: time(Pass::Forward).ok_or_else(|| missing("forward"))?,
        backward_input: time(Pass::BackwardInput)
            .map(|time| scale * time)
            .or(half)
            .ok_or_else(|| missing("backward"))?,
        backward_weight: time(Pass::BackwardWeight)
            .map(|time| scale * time)
            .or(half)
            .ok_or_else(|| missing("backward"))?,
        update: 0.0,
        reduce: 0.0,
        saved,
        pending: change.map_or(0.0, |change| (saved + change).max(0.0)),
        restored: backward.map_or(0.0, |samples| usual(&samples.restored)),
    })
}

/// The time of a transfer.
fn comm(timelines: &[&Timeline]) -> f64 {
    let all = || timelines.iter().flat_map(|timeline| &timeline.transfers);
    let time = |transfer: &TimedTransfer| transfer.end - transfer.start;
    let awaited: Vec<f64> = timelines
        .iter()
        .flat_map(|timeline| awaited(timeline))
        .map(|transfer| time(&transfer))
        .collect();
    match (awaited.is_empty(), all().next()) {
        (false, _) => usual(&awaited),
        (true, Some(first)) => all().map(time).fold(time(first), f64::min),
        (true, None) => 0.0,
    }
}

/// The transfers for which their receiver stood waiting: its pass before was done when they were handed over.
fn awaited(timeline: &Timeline) -> Vec<TimedTransfer> {
    let mut free: HashMap<(Flow, Cell), f64> = HashMap::new();
    for row in &timeline.ranks {
        let before = [0.0].into_iter().chain(row.iter().map(|timed: &Timed| timed.end));
        for (timed, before) in row.iter().zip(before) {
            free.extend(timed.pass.output().map(|flow| ((flow, timed.cell), before)));
        }
    }
    let waits = |transfer: &&TimedTransfer| {
        let receiver = transfer
            .receiver()
            .and_then(|cell| free.get(&(transfer.flow, cell)));
        receiver.is_some_and(|free| *free <= transfer.start)
    };
    timeline.transfers.iter().filter(waits).copied().collect()
}

/// The middle of some numbers, the upper one of two; `None` when there is none.
pub(crate) fn median(numbers: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut numbers: Vec<f64> = numbers.into_iter().collect();
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied()
}

/// The middle of what was measured at least once.
fn usual(numbers: &[f64]) -> f64 {
    median(numbers.iter().copied()).expect("there is a sample wherever a pass was seen")
}
