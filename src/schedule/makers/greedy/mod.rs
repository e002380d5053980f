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

use crate::schedule::{Cell, Pass, Placement, StageCost};

/// How many passes [`best`] lists at most before it stays with what it has.
const BUDGET: usize = 3_000_000;

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
        extra[rank.index()] = extra[rank.index()].max(cost.pending - cost.saved);
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

impl Listed {
    /// How many passes there are.
    fn count(&self) -> usize {
        self.passes.iter().map(Vec::len).sum()
    }

    /// What is to be small, the goal first.
    fn score(&self, goal: Goal) -> [f64; 2] {
        match goal {
            Goal::Makespan => [self.makespan, self.span],
            Goal::Span => [self.span, self.makespan],
        }
    }
}

/// The best of these policies and what it lists, the most promising first: at least one is tried, and then as many as do not
/// take too long. `None` when the memory cannot hold one micro-batch.
pub(crate) fn best(
    task: &Task<'_>,
    policies: impl IntoIterator<Item = Policy>,
    goal: Goal,
) -> Option<(Policy, Listed)> {
    let mut best: Option<(Policy, Listed)> = None;
    let mut listed = 0;
    for policy in policies {
        if listed > BUDGET {
            break;
        }
        let next = lister::list(task, &policy)?;
        listed += next.count();
        if best
            .as_ref()
            .is_none_or(|(_, best)| next.score(goal) < best.score(goal))
        {
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
        caps[stage] =
            (left[rank.index()] / stages[stage].saved + 1e-9).clamp(1.0, f64::from(u32::MAX)) as u32;
    }
    caps
}

/// Policies worth trying, the most promising first: the same habits on all `ranks`, with each of these limits.
pub(crate) fn policies(ranks: u32, in_flight: &[Vec<u32>]) -> impl Iterator<Item = Policy> {
    habits().flat_map(move |habits| {
        in_flight.iter().map(move |in_flight| Policy {
            in_flight: in_flight.clone(),
            habits: vec![habits; ranks as usize],
        })
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
