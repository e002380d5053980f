//! What is to be listed, the result, and how results are compared.

use std::fmt;
use std::str::FromStr;

use crate::error::Problem;
use crate::plan::StageCost;
use crate::schedule::{Cell, Pass, Placement};

/// What is to be listed, and the limits to keep.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Task<'a> {
    pub(crate) placement: &'a Placement,
    pub(crate) micro_batches: u32,
    /// Each stage's cost.
    pub(crate) stages: &'a [StageCost],
    /// The time of a transfer.
    pub(crate) comm: f64,
    /// The memory that a rank may hold. At least [`least_memory`].
    pub(crate) memory: f64,
}

impl Task<'_> {
    /// A lower bound of the score: every rank works without a gap from when its first input can be there.
    pub(super) fn bound(&self, goal: Goal) -> [f64; 2] {
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

/// The least memory that a rank of this placement needs: the memory of one micro-batch in flight.
pub(crate) fn least_memory(placement: &Placement, stages: &[StageCost]) -> f64 {
    let mut least = vec![0.0; placement.ranks() as usize];
    let mut extra = vec![0.0f64; placement.ranks() as usize];
    for (rank, cost) in placement.iter().zip(stages) {
        least[rank.index()] += cost.saved;
        extra[rank.index()] = extra[rank.index()].max(cost.rise(Pass::BackwardInput));
    }
    least.iter().zip(extra).map(|(least, extra)| least + extra).fold(0.0, f64::max)
}

/// Listed passes and how long they take.
#[derive(Clone, Debug)]
pub(crate) struct Listed {
    pub(crate) passes: Vec<Vec<(Pass, Cell)>>,
    /// When the last rank has finished.
    pub(crate) makespan: f64,
    /// The longest span of a rank, from its first start to its last end.
    pub(crate) span: f64,
}

impl Listed {
    /// How many passes there are.
    pub(super) fn count(&self) -> usize {
        self.passes.iter().map(Vec::len).sum()
    }

    /// The score: smaller is better, and the goal comes first.
    pub(super) fn score(&self, goal: Goal) -> [f64; 2] {
        goal.order(self.makespan, self.span)
    }
}

/// What to make as short as possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// The makespan: for ranks that meet at the end of each step.
    Makespan,
    /// The longest span of a rank: for ranks that go on to the next step without meeting.
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
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        match text {
            "makespan" => Ok(Self::Makespan),
            "span" => Ok(Self::Span),
            _ => Err(Problem::new(format!("{text:?} is not a goal; known are makespan and span"))),
        }
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
