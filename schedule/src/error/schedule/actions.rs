//! Actions that do not fit the placement.

use std::fmt;

use crate::id::{MicroBatch, Rank, StageId};

/// An action and its place. Prints as `rank 2, action 17 (2F5)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActionPlace {
    /// The rank.
    pub rank: Rank,
    /// The action's place in the rank's list, from 0.
    pub index: usize,
    /// The action in text form.
    pub action: String,
}

impl fmt::Display for ActionPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {}, action {} ({})", self.rank, self.index, self.action)
    }
}

/// What is wrong with the actions of a schedule: the first problems, and how many more there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems {
    /// The first problems.
    pub named: Vec<ActionProblem>,
    /// How many more there are.
    pub more: usize,
}

impl std::error::Error for Problems {}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let ([only], 0) = (&self.named[..], self.more) {
            return only.fmt(f);
        }
        write!(f, "{} problems:", self.named.len() + self.more)?;
        for problem in &self.named {
            write!(f, "\n  {problem}")?;
        }
        match self.more {
            0 => Ok(()),
            more => write!(f, "\n  and {more} more"),
        }
    }
}

/// One problem with the actions of a schedule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ActionProblem {
    /// The placement has no such stage.
    #[error("{place}: there is no stage {stage}, only 0 to {last}; remove the action")]
    NoSuchStage {
        /// The action.
        place: ActionPlace,
        /// Its stage.
        stage: StageId,
        /// The last stage.
        last: StageId,
    },
    /// The schedule has no such micro-batch.
    #[error("{place}: there is no micro-batch {micro_batch}, only 0 to {last}; remove the action")]
    NoSuchMicroBatch {
        /// The action.
        place: ActionPlace,
        /// Its micro-batch.
        micro_batch: MicroBatch,
        /// The last micro-batch.
        last: MicroBatch,
    },
    /// An action is on another rank than its stage.
    #[error("{place}: stage {stage} is on rank {home}; move the action there")]
    WrongRank {
        /// The action.
        place: ActionPlace,
        /// Its stage.
        stage: StageId,
        /// The rank of the stage.
        home: Rank,
    },
    /// A transfer that no other rank needs.
    #[error("{place}: stage {stage} has no neighbour on another rank on that side; remove the transfer")]
    NoNeighbour {
        /// The transfer.
        place: ActionPlace,
        /// Its stage.
        stage: StageId,
    },
    /// An action occurs twice.
    #[error("{second} is at action {} of rank {} already; remove one", first.index, first.rank)]
    Repeated {
        /// Where it occurs first.
        first: ActionPlace,
        /// Where it occurs again.
        second: ActionPlace,
    },
    /// One cell has a whole backward and also a half of one.
    #[error("{second} and {first} make the same gradient; keep either B, or I and W")]
    SameGradient {
        /// The first of the two.
        first: ActionPlace,
        /// The other.
        second: ActionPlace,
    },
    /// A cell has a whole backward and also a backward-weight.
    #[error("{place}: {backward} makes the weight gradient already; remove it or write {input}")]
    SameWeightGradient {
        /// The backward-weight.
        place: ActionPlace,
        /// The whole backward.
        backward: String,
        /// The backward-input to write instead of it.
        input: String,
    },
    /// An action is missing.
    #[error("rank {rank} lacks {action}{advice}")]
    Missing {
        /// The rank on which it should be.
        rank: Rank,
        /// The action.
        action: String,
        /// Advice about it.
        advice: Advice,
    },
    /// An action is after a step.
    #[error("{place} comes after {step}; put the steps at the end of the rank's list")]
    AfterStep {
        /// The action.
        place: ActionPlace,
        /// The step.
        step: String,
    },
}

/// Advice about a missing action.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Advice {
    /// Nothing.
    None,
    /// These two halves would be right too.
    OrHalves(String, String),
    /// This action needs it.
    NeededBy(String),
    /// A whole backward instead of the backward-input would be right too.
    OrWhole {
        /// The whole backward.
        backward: String,
        /// The backward-input that is there.
        input: String,
    },
    /// Other stages have a reduction.
    OthersReduce,
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => Ok(()),
            Self::OrHalves(input, weight) => write!(f, " (or {input} and {weight})"),
            Self::NeededBy(action) => write!(f, ", which {action} needs"),
            Self::OrWhole { backward, input } => write!(f, ", or write {backward} for {input}"),
            Self::OthersReduce => {
                f.write_str(", though other stages have a reduction; give each stage one, or none")
            }
        }
    }
}
