//! A step on paper.

use crate::Result;
use crate::schedule::{Costs, Links, Pass, Schedule, Timed};

/// How a step goes under given costs. Times are in the unit of the costs.
#[derive(Clone, Debug, PartialEq)]
pub struct Simulation {
    /// From the first start to the last end on any rank: what a step takes when all ranks wait for each other
    /// at its end.
    pub makespan: f64,
    /// The longest first start to last end on one rank: what a step takes when steps interlock, as the
    /// zero-bubble papers count.
    pub span: f64,
    /// The share of the makespan in which a rank does no work, from 0 to 1.
    pub bubble_makespan: f64,
    /// The share of the span in which a rank does no work, from 0 to 1.
    pub bubble_span: f64,
    /// Each rank by itself.
    pub ranks: Vec<RankSimulation>,
}

/// How a step goes for one rank.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RankSimulation {
    /// Time spent in passes.
    pub busy: f64,
    /// From the rank's first start to its last end.
    pub span: f64,
    /// The most activations the rank holds at once; 1 is what one micro-batch leaves in a rank's whole share.
    /// A forward adds them, the backward or backward-input gives them back.
    pub peak_activations: f64,
    /// The most memory the rank holds at once for backwards to come, in the unit of the costs.
    pub peak_memory: f64,
}

/// Simulates a step of the schedule: every pass starts as early as it can.
///
/// # Errors
/// [`Error::Invalid`](crate::Error::Invalid) when the costs are of another number of stages, or the schedule does not hold
/// on these links.
pub fn simulate(schedule: &Schedule, costs: &Costs, links: Links) -> Result<Simulation> {
    let timeline = schedule.timeline(costs, links)?;
    let chunks: Vec<_> = schedule.placement().chunks().into_iter().map(f64::from).collect();
    let ranks: Vec<_> = timeline
        .ranks
        .iter()
        .zip(&chunks)
        .map(|(row, chunks)| RankSimulation {
            busy: row.iter().map(|timed| timed.end - timed.start).sum(),
            span: last_end(row) - row.first().map_or(0.0, |first| first.start),
            peak_activations: f64::from(peak(row)) / chunks,
            peak_memory: row.iter().map(|timed| timed.held).fold(0.0, f64::max),
        })
        .collect();
    let makespan = timeline.ranks.iter().map(|row| last_end(row)).fold(0.0, f64::max);
    let span = ranks.iter().map(|rank| rank.span).fold(0.0, f64::max);
    let work = ranks.iter().map(|rank| rank.busy).sum::<f64>() / ranks.len() as f64;
    let bubble = |time: f64| (1.0 - work / time).max(0.0);
    Ok(Simulation {
        makespan,
        span,
        bubble_makespan: bubble(makespan),
        bubble_span: bubble(span),
        ranks,
    })
}

fn last_end(row: &[Timed]) -> f64 {
    row.last().map_or(0.0, |last| last.end)
}

/// The most stages' activations that are held at once.
fn peak(row: &[Timed]) -> u32 {
    let (mut held, mut peak) = (0, 0);
    for timed in row {
        match timed.pass {
            Pass::Forward => held += 1,
            Pass::Backward | Pass::BackwardInput => held -= 1,
            Pass::BackwardWeight => {}
        }
        peak = peak.max(held);
    }
    peak
}
