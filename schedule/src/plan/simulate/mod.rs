//! Simulates one step, and steps that follow each other without a barrier. The clock gives each action its
//! time; beside it are the copies to the host, the queues of the links, and the activations that ranks hold.

pub(super) mod clock;
mod copies;
mod held_activations;
mod queue;
pub(super) mod replicas;

use crate::Result;
use crate::id::Rank;
use crate::plan::{Clock, Costs, Played};
use crate::schedule::{Cell, Flow, LinkKind, Pass, Placement, Schedule, Timed, TimedReduction};

/// How a step goes under given costs. Times are in the unit of the costs.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Simulation {
    /// From the start of the first pass to the end of the last pass on any rank.
    pub makespan: f64,
    /// The longest span of a rank, from the start of its first pass to the end of its last. The zero-bubble
    /// papers count so.
    pub span: f64,
    /// The idle share of the makespan, from 0 to 1, averaged over the ranks. A rank is idle while it runs no
    /// pass.
    pub bubble_makespan: f64,
    /// The idle share of the span, from 0 to 1: by how much the ranks' mean work is shorter than the span. A
    /// rank with less work than another counts as idle for the difference.
    pub bubble_span: f64,
    /// The exposed time of the reductions, which no pass hides: from the makespan to the end of the last
    /// reduction. 0 where there are none.
    pub exposed_reductions: f64,
    /// From one step to the next when all ranks meet before they update their parameters. It is the sum of
    /// the makespan, the exposed reductions and the longest update of a rank, with the weights that it
    /// collects from its replicas. [`period`](crate::plan::period)
    /// gives the time when they do not meet.
    pub step: f64,
    /// Each rank by itself.
    pub ranks: Vec<RankSimulation>,
}

impl Simulation {
    /// The most memory that one of the ranks holds, in the unit of the costs.
    pub fn peak_memory(&self) -> f64 {
        self.ranks.iter().map(|rank| rank.peak_memory).fold(0.0, f64::max)
    }
}

/// How a step goes on one rank. `warm_up`, `busy`, `waiting` and `drain` add up to the makespan.
#[derive(Clone, Debug, PartialEq)]
pub struct RankSimulation {
    /// Time spent in passes.
    pub busy: f64,
    /// Time before the rank's first pass.
    pub warm_up: f64,
    /// Time between its first and its last pass in which it runs no pass.
    pub waiting: f64,
    /// The part of it in which it waited for copies of offloaded activations.
    pub copying: f64,
    /// The time of these copies, to the host and back. Most of it is beside passes.
    pub copies: f64,
    /// Time from the end of its last pass to the makespan.
    pub drain: f64,
    /// From the start of its first pass to the end of its last.
    pub span: f64,
    /// From the end of its last pass to the end of its last reduction. 0 where its passes hide all
    /// reductions.
    pub exposed_reductions: f64,
    /// The ranks that it waited for, the longest wait first.
    pub waits: Vec<Wait>,
    /// The most activations that the rank holds at once. One micro-batch in all stages of the rank counts 1.
    /// A forward adds activations. The backward or backward-input frees them.
    pub peak_activations: f64,
    /// The most memory that the rank holds at once for later backwards, recomputed activations included. In
    /// the unit of the costs.
    pub peak_memory: f64,
}

/// The part of a rank's waiting time that one other rank caused.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wait {
    /// The rank whose activations or gradients were late.
    pub on: Rank,
    /// The time waited.
    pub time: f64,
}

/// Simulates a step of the schedule: every pass starts as early as it can.
///
/// # Errors
/// [`Error::Plan`](crate::Error::Plan) when the costs are for another number of
/// stages. [`ScheduleError::Deadlock`](crate::error::ScheduleError::Deadlock) when the schedule cannot end on
/// these links.
pub fn simulate(schedule: &Schedule, costs: &Costs, links: LinkKind) -> Result<Simulation> {
    simulate_from(schedule, costs, links, &[])
}

/// The same, if no stage's reduction starts before these times.
pub(crate) fn simulate_from(
    schedule: &Schedule,
    costs: &Costs,
    links: LinkKind,
    reductions_from: &[f64],
) -> Result<Simulation> {
    let placement = schedule.placement();
    let mut totals = vec![Totals::default(); schedule.ranks() as usize];
    let clock = Clock::new(schedule, costs, links)?;
    clock.reductions_from(reductions_from).step(|played| match played {
        Played::Pass(rank, timed) => totals[rank.index()].add(&timed, placement),
        Played::Reduction(TimedReduction { rank, end, .. }) => {
            let reduced = &mut totals[rank.index()].reduced;
            *reduced = end.max(*reduced);
        }
        Played::Late(rank, time) => totals[rank.index()].late = time,
        Played::Copy(copy) => totals[copy.rank.index()].copies += copy.end - copy.start,
        Played::Transfer(_) => {}
    })?;
    let makespan = totals.iter().map(|total| total.end).fold(0.0, f64::max);
    let reduced = totals.iter().map(|total| total.reduced).fold(makespan, f64::max);
    let ranks: Vec<_> = totals
        .into_iter()
        .zip(placement.chunks())
        .map(|(total, chunks)| total.rank(makespan, chunks))
        .collect();
    let span = ranks.iter().map(|rank| rank.span).fold(0.0, f64::max);
    let work = ranks.iter().map(|rank| rank.busy).sum::<f64>() / ranks.len() as f64;
    let bubble = |time: f64| (1.0 - work / time).max(0.0);
    Ok(Simulation {
        makespan,
        span,
        bubble_makespan: bubble(makespan),
        bubble_span: bubble(span),
        exposed_reductions: reduced - makespan,
        step: reduced + longest_update(costs, placement)?,
        ranks,
    })
}

fn longest_update(costs: &Costs, placement: &Placement) -> Result<f64> {
    let mut updates = vec![0.0; placement.ranks() as usize];
    for (rank, cost) in placement.iter().zip(costs.of(placement)?) {
        updates[rank.index()] += cost.update + cost.gather;
    }
    Ok(updates.into_iter().fold(0.0, f64::max))
}

/// Sums over the passes of one rank.
#[derive(Clone, Default)]
struct Totals {
    start: Option<f64>,
    end: f64,
    /// When the last reduction ends.
    reduced: f64,
    busy: f64,
    waits: Vec<Wait>,
    /// By how much the next pass is later because of copies, and all passes were.
    late: f64,
    copying: f64,
    copies: f64,
    /// The activations that the rank holds now, each of one micro-batch in one stage.
    held: u32,
    most_held: u32,
    peak_memory: f64,
}

impl Totals {
    fn add(&mut self, timed: &Timed, placement: &Placement) {
        match self.start {
            None => self.start = Some(timed.start),
            Some(_) if timed.start > self.end => self.wait(timed, placement),
            Some(_) => {}
        }
        self.late = 0.0;
        self.end = timed.end;
        self.busy += timed.end - timed.start;
        match timed.pass {
            Pass::Forward => self.held += 1,
            Pass::Backward | Pass::BackwardInput => self.held -= 1,
            Pass::BackwardWeight => {}
        }
        self.most_held = self.most_held.max(self.held);
        self.peak_memory = self.peak_memory.max(timed.most);
    }

    fn wait(&mut self, timed: &Timed, placement: &Placement) {
        let all = timed.start - self.end;
        let late = self.late.min(all);
        self.copying += late;
        let time = all - late;
        if time <= 0.0 {
            return;
        }
        let on =
            source(timed.pass, timed.cell, placement).expect("only what comes from a rank is waited for");
        match self.waits.iter_mut().find(|wait| wait.on == on) {
            Some(wait) => wait.time += time,
            None => self.waits.push(Wait { on, time }),
        }
    }

    fn rank(mut self, makespan: f64, chunks: u32) -> RankSimulation {
        self.waits.sort_by(|a, b| b.time.total_cmp(&a.time));
        let warm_up = self.start.unwrap_or(0.0);
        RankSimulation {
            busy: self.busy,
            warm_up,
            waiting: self.waits.iter().fold(self.copying, |time, wait| time + wait.time),
            copying: self.copying,
            copies: self.copies,
            drain: makespan - self.end,
            span: self.end - warm_up,
            exposed_reductions: (self.reduced - self.end).max(0.0),
            waits: self.waits,
            peak_activations: f64::from(self.most_held) / f64::from(chunks),
            peak_memory: self.peak_memory,
        }
    }
}

/// The rank that sends this pass its input or its output's gradient.
fn source(pass: Pass, cell: Cell, placement: &Placement) -> Option<Rank> {
    let flow = match pass {
        Pass::Forward => Flow::Activation,
        Pass::Backward | Pass::BackwardInput | Pass::BackwardWeight => Flow::Gradient,
    };
    placement.rank(flow.before(cell.stage)?)
}

/// How many steps are played at most.
const STEPS: usize = 256;

/// The relative difference below which the period counts as found.
const CLOSE: f64 = 1e-9;

/// The long-run time from one step to the next when the ranks do not meet at its end. Each rank updates its
/// parameters after its last pass and starts the next step at once. The zero-bubble papers call this an
/// optimizer without synchronization ([arXiv 2401.10241](https://arxiv.org/abs/2401.10241), section 4).
///
/// The period is at least the work and the update of any one rank. It is at most
/// [`Simulation::step`](super::Simulation::step).
///
/// Steps are played until all ranks have moved on by the same time over some number of steps. From there on
/// the pattern repeats. It may not have settled after 256 steps. The result is then an upper bound, too large
/// by at most a 256th of the largest time difference between ranks.
///
/// # Errors
/// As [`simulate`](super::simulate).
pub fn period(schedule: &Schedule, costs: &Costs, links: LinkKind) -> Result<f64> {
    let mut clock = Clock::new(schedule, costs, links)?;
    let mut past: Vec<Vec<f64>> = vec![clock.fronts().collect()];
    let (mut least, mut most) = (0.0, f64::INFINITY);
    for _ in 0..STEPS {
        clock.step(|_| ())?;
        let now: Vec<_> = clock.fronts().collect();
        // In a system of max and + only, the slowest and the fastest component bound the long-run growth.
        for (before, steps) in past.iter().rev().zip(1..) {
            let moved = now.iter().zip(before).map(|(now, before)| (now - before) / f64::from(steps));
            let (low, high) = moved.fold((f64::INFINITY, 0.0), |(low, high): (f64, f64), moved| {
                (low.min(moved), high.max(moved))
            });
            (least, most) = (f64::max(least, low), f64::min(most, high));
        }
        if most - least <= CLOSE * most {
            break;
        }
        past.push(now);
    }
    Ok(most)
}
