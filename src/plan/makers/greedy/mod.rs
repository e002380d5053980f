//! Lists passes against simulated time: what a rank does next is decided when it is free.
//!
//! A free rank does a backward-input that is ready, else a forward that is ready and fits its memory, else a
//! backward-weight while it would idle ([arXiv 2401.10241](https://arxiv.org/abs/2401.10241), section 3.1, decides so too,
//! rank by rank). [`Habits`] vary this; [`best`] tries several and keeps the best. Two limits shape the result: the memory of
//! a rank, and how many micro-batches a stage has in flight, the lifespan of a building block in
//! [arXiv 2405.15362](https://arxiv.org/abs/2405.15362).
//!
//! It always ends: a forward has to leave room for finishing the micro-batches one after the other, so the oldest of all can
//! always go on.

mod climb;
mod lister;

pub(crate) use climb::climb;

use std::fmt;
use std::str::FromStr;

use crate::error::PlanError;
use crate::plan::StageCost;
use crate::schedule::{Cell, Pass, Placement};

/// How many passes [`best`] lists at most before it stays with what it has, once it has tried [`AT_LEAST`] policies.
const BUDGET: usize = 3_000_000;

const AT_LEAST: usize = 3;

/// What is to be listed, and the limits it has to keep.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Task<'a> {
    pub(crate) placement: &'a Placement,
    pub(crate) micro_batches: u32,
    /// Each stage's cost.
    pub(crate) stages: &'a [StageCost],
    /// The time of a transfer.
    pub(crate) comm: f64,
    /// What a rank may hold; at least [`least_memory`].
    pub(crate) memory: f64,
}

/// What the ranks keep to when they choose.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Policy {
    /// How many micro-batches each stage may have between forward and backward-input, at least 1.
    pub(crate) in_flight: Vec<u32>,
    /// Each rank's habits.
    pub(crate) habits: Vec<Habits>,
    /// Passes go in rounds of as many micro-batches as there are ranks: a rank begins no forward of the next round, or of a
    /// later chunk, while an earlier one is to come; backward-inputs the same from the last chunk on. This may not end, and
    /// then counts for nothing. Otherwise a rank with several chunks does what is ready.
    pub(crate) rounds: bool,
    /// What waits for its backward-weight counts with all that the forward left, whatever the backward-input frees: little is
    /// put off.
    pub(crate) thrifty: bool,
}

/// How a free rank chooses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Habits {
    /// What goes first when both a forward and a backward-input are ready.
    pub(crate) first: First,
    /// A forward waits for a backward-input that comes within this share of the forward's time.
    pub(crate) patience: f64,
    /// A gap before the next pass is filled with a backward-weight when it is at least this share of its time.
    pub(crate) fill: f64,
    /// A smaller gap is filled too when it would make this rank the one that has idled most.
    pub(crate) even: bool,
}

/// What goes first when both a forward and a backward-input are ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum First {
    Backward,
    Forward,
    /// What the rank did not do last.
    InTurn,
}

/// Passes that were listed, and how they go.
#[derive(Clone, Debug)]
pub(crate) struct Listed {
    pub(crate) passes: Vec<Vec<(Pass, Cell)>>,
    /// When the last rank is done.
    pub(crate) makespan: f64,
    /// The longest time from a rank's first start to its last end.
    pub(crate) span: f64,
}

/// The least memory a rank of this placement can do with: one micro-batch in flight.
pub(crate) fn least_memory(placement: &Placement, stages: &[StageCost]) -> f64 {
    let mut least = vec![0.0; placement.ranks() as usize];
    let mut extra = vec![0.0f64; placement.ranks() as usize];
    for (rank, cost) in placement.iter().zip(stages) {
        least[rank.index()] += cost.saved;
        extra[rank.index()] = extra[rank.index()].max(cost.rise(Pass::BackwardInput));
    }
    least
        .iter()
        .zip(extra)
        .map(|(least, extra)| least + extra)
        .fold(0.0, f64::max)
}

/// What a step should be short by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// The makespan: ranks wait for each other at the end of a step.
    Makespan,
    /// The longest span of a rank: steps follow each other without such a wait.
    Span,
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Makespan => "makespan",
            Self::Span => "span",
        })
    }
}

impl FromStr for Goal {
    type Err = PlanError;

    fn from_str(text: &str) -> Result<Self, PlanError> {
        match text {
            "makespan" => Ok(Self::Makespan),
            "span" => Ok(Self::Span),
            _ => Err(PlanError::Goal(text.to_owned())),
        }
    }
}

impl Listed {
    /// How many passes there are.
    fn count(&self) -> usize {
        self.passes.iter().map(Vec::len).sum()
    }

    /// What is to be small, the goal first.
    fn score(&self, goal: Goal) -> [f64; 2] {
        goal.order(self.makespan, self.span)
    }
}

impl Goal {
    fn order(self, makespan: f64, span: f64) -> [f64; 2] {
        match self {
            Self::Makespan => [makespan, span],
            Self::Span => [span, makespan],
        }
    }
}

impl Task<'_> {
    /// A score that no order beats: every rank works without a gap from when its first input can be there.
    fn bound(&self, goal: Goal) -> [f64; 2] {
        let ranks = self.placement.ranks() as usize;
        let (mut first, mut work) = (vec![f64::INFINITY; ranks], vec![0.0; ranks]);
        let (mut arrival, mut before) = (0.0, None);
        for (rank, cost) in self.placement.iter().zip(self.stages) {
            if before.is_some_and(|before| before != rank) {
                arrival += self.comm;
            }
            first[rank.index()] = arrival.min(first[rank.index()]);
            work[rank.index()] += cost.work() * f64::from(self.micro_batches);
            arrival += cost.forward;
            before = Some(rank);
        }
        let ends = first.iter().zip(&work).map(|(first, work)| first + work);
        let span = work.iter().copied().fold(0.0, f64::max);
        goal.order(ends.fold(0.0, f64::max), span)
    }
}

/// Whether a score is better than another by more than rounding.
fn better(a: [f64; 2], b: [f64; 2]) -> bool {
    let less = |at: usize| a[at] < b[at] * (1.0 - 1e-9);
    let more = |at: usize| b[at] < a[at] * (1.0 - 1e-9);
    less(0) || !more(0) && less(1)
}

/// The best of these policies and what it lists, the most promising first: at least one is tried, and then as many as do not
/// take too long, or up to one that cannot be beaten. `None` when the memory cannot hold one micro-batch.
pub(crate) fn best(
    task: &Task<'_>,
    policies: impl IntoIterator<Item = Policy>,
    goal: Goal,
) -> Option<(Policy, Listed)> {
    let mut best: Option<(Policy, Listed)> = None;
    let bound = task.bound(goal);
    let all = 3 * task.stages.len() * task.micro_batches as usize;
    let mut listed = 0;
    for (tried, policy) in policies.into_iter().enumerate() {
        let enough = |(_, best): &(Policy, Listed)| {
            tried >= AT_LEAST && listed > BUDGET || !better(bound, best.score(goal))
        };
        if best.as_ref().is_some_and(enough) {
            break;
        }
        let next = lister::list(task, &policy)?;
        listed += next.count();
        let first = |(_, best): &(Policy, Listed)| !better(next.score(goal), best.score(goal));
        if next.count() == all && !best.as_ref().is_some_and(first) {
            best = Some((policy, next));
        }
    }
    best
}

/// How many micro-batches each stage may have in flight. A stage lives the longer the further it is from the last one;
/// those after the first of a rank get `share` of that, and the first gets the memory that they leave.
pub(crate) fn in_flight(placement: &Placement, stages: &[StageCost], memory: f64, share: f64) -> Vec<u32> {
    let count = placement.stages();
    let mut left = vec![memory; placement.ranks() as usize];
    let mut caps: Vec<_> = (0..count)
        .map(|stage| (share * f64::from(count - stage)).round().max(1.0) as u32)
        .collect();
    for (stage, rank) in placement.iter().enumerate().skip(placement.ranks() as usize) {
        left[rank.index()] -= f64::from(caps[stage]) * stages[stage].saved;
    }
    for (stage, rank) in placement.iter().enumerate().take(placement.ranks() as usize) {
        caps[stage] = (left[rank.index()] / stages[stage].saved + 1e-9).max(1.0) as u32;
    }
    caps
}

/// Policies worth trying, the most promising first: the same habits on all `ranks`, with each of these limits.
pub(crate) fn policies(ranks: u32, in_flight: Vec<Vec<u32>>) -> impl Iterator<Item = Policy> {
    habits().flat_map(move |habits| {
        let policy = |in_flight: &Vec<u32>| Policy {
            in_flight: in_flight.clone(),
            habits: vec![habits; ranks as usize],
            rounds: false,
            thrifty: false,
        };
        in_flight.iter().map(policy).collect::<Vec<_>>()
    })
}

/// The habits worth trying, the most promising first.
fn habits() -> impl Iterator<Item = Habits> {
    [0.3, 0.0, 0.7].into_iter().flat_map(|patience| {
        [0.0, 1.0, 0.5].into_iter().flat_map(move |fill| {
            [First::Backward, First::InTurn, First::Forward]
                .into_iter()
                .flat_map(move |first| {
                    [true, false].into_iter().map(move |even| Habits {
                        first,
                        patience,
                        fill,
                        even,
                    })
                })
        })
    })
}
