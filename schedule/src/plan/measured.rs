//! Costs taken from measured steps.

use std::collections::{BTreeMap, HashMap};

use crate::plan::{Costs, StageCost};
use crate::schedule::{Cell, Flow, Pass, Timed, TimedTransfer, Timeline};
use crate::{Error, Result};

impl Costs {
    /// The costs of the passes of these steps: for each stage and pass, the median over all its
    /// micro-batches. A simulation with these costs shows the step with every pass at its usual time.
    ///
    /// A whole backward counts half as backward-input and half as backward-weight. If the stage has split
    /// backwards too, those give the ratio of the halves. A transfer takes the median over the transfers
    /// whose receiver waited for them. If no receiver waited, it takes the shortest of all. The parameter
    /// update, the reduction and copies of offloaded activations cost nothing.
    ///
    /// # Errors
    /// [`Error::Plan`] when a stage has no forward or no backward.
    pub fn measured<'a>(timelines: impl IntoIterator<Item = &'a Timeline>) -> Result<Self> {
        let timelines: Vec<&Timeline> = timelines.into_iter().collect();
        let mut passes: BTreeMap<(u32, Pass), Samples> = BTreeMap::new();
        for row in timelines.iter().flat_map(|timeline| &timeline.ranks) {
            for timed in row {
                let samples = passes.entry((timed.cell.stage.0, timed.pass)).or_default();
                samples.times.push(timed.end - timed.start);
                samples.changes.push(timed.held - timed.before);
                let above = timed.most > timed.before.max(timed.held);
                samples.restored.push(if above { timed.most - timed.before } else { 0.0 });
            }
        }
        let stages = passes.keys().map(|(stage, _)| stage + 1).max().unwrap_or(0);
        let costs = (0..stages).map(|stage| cost(&passes, stage)).collect::<Result<_>>()?;
        Self::each(costs, comm(&timelines))
    }
}

/// The measurements of one pass of one stage.
#[derive(Debug, Default)]
struct Samples {
    times: Vec<f64>,
    /// By how much the pass changed the memory held.
    changes: Vec<f64>,
    /// By how much memory during the pass exceeded the level before it, where it also exceeded the level
    /// after it.
    restored: Vec<f64>,
}

fn cost(passes: &BTreeMap<(u32, Pass), Samples>, stage: u32) -> Result<StageCost> {
    let of = |pass| passes.get(&(stage, pass));
    let time = |pass| of(pass).map(|samples| usual(&samples.times));
    let missing =
        |pass| Error::plan(format!("stage {stage} has no {pass} in the timeline to take its cost from"));
    let whole = time(Pass::Backward);
    let half = whole.map(|time| time / 2.0);
    let count = |pass| of(pass).map_or(0.0, |samples| samples.times.len() as f64);
    let (halves, wholes) = (count(Pass::BackwardInput), count(Pass::Backward));
    let both =
        time(Pass::BackwardInput).zip(time(Pass::BackwardWeight)).map(|(input, weight)| input + weight);
    // Where a stage has whole and split backwards, the halves are scaled to the average time of both kinds.
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
        saved,
        pending: change.map_or(0.0, |change| (saved + change).max(0.0)),
        restored: backward.map_or(0.0, |samples| usual(&samples.restored)),
        ..StageCost::NOTHING
    })
}

/// The time of a transfer.
fn comm(timelines: &[&Timeline]) -> f64 {
    let all = || timelines.iter().flat_map(|timeline| &timeline.transfers);
    let time = |transfer: &TimedTransfer| transfer.end - transfer.start;
    let awaited: Vec<f64> =
        timelines.iter().flat_map(|timeline| awaited(timeline)).map(|transfer| time(&transfer)).collect();
    match (awaited.is_empty(), all().next()) {
        (false, _) => usual(&awaited),
        (true, Some(first)) => all().map(time).fold(time(first), f64::min),
        (true, None) => 0.0,
    }
}

/// The transfers whose receiver waited: it had finished the pass before when the data was sent.
fn awaited(timeline: &Timeline) -> Vec<TimedTransfer> {
    let mut free: HashMap<(usize, Flow, Cell), f64> = HashMap::new();
    for (rank, row) in timeline.ranks.iter().enumerate() {
        let before = [0.0].into_iter().chain(row.iter().map(|timed: &Timed| timed.end));
        for (timed, before) in row.iter().zip(before) {
            free.extend(timed.pass.output().map(|flow| ((rank, flow, timed.cell), before)));
        }
    }
    let waits = |transfer: &&TimedTransfer| {
        let to = transfer.to.index();
        let receiver = transfer.receiver().and_then(|cell| free.get(&(to, transfer.flow, cell)));
        receiver.is_some_and(|free| *free <= transfer.start)
    };
    timeline.transfers.iter().filter(waits).copied().collect()
}

/// The median of some numbers, the upper one of two. `None` when there are none.
pub fn median(numbers: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut numbers: Vec<f64> = numbers.into_iter().collect();
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied()
}

/// The median of at least one number.
fn usual(numbers: &[f64]) -> f64 {
    median(numbers.iter().copied()).expect("there is a sample wherever a pass was seen")
}
