//! A schedule or a placement that is wrong.

use std::fmt::{self, Display};

use super::Problem;
use crate::id::{Rank, StageId};

/// A schedule or a placement that is wrong. Ranks, stages, micro-batches, actions and entries are counted
/// from 0.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScheduleError {
    /// An entry of a CSV row that cannot be read.
    #[error("rank {rank}, entry {entry}: {source}")]
    Entry {
        /// The rank whose row it is in.
        rank: Rank,
        /// Its place in the row, empty entries included.
        entry: usize,
        /// What is wrong with it.
        source: Box<ScheduleError>,
    },
    /// Actions that wait for something that never happens.
    #[error(transparent)]
    Deadlock(#[from] Deadlock),
    /// Any other failure, in words.
    #[error(transparent)]
    Problem(Problem),
}

impl ScheduleError {
    /// A failure with this message.
    pub fn new(text: impl Into<String>) -> Self {
        Self::Problem(Problem::new(text))
    }

    /// A stage with actions on two ranks: `home`, and `other` with this action.
    pub(crate) fn on_two_ranks(stage: StageId, home: Rank, (other, action): (Rank, impl Display)) -> Self {
        let (first, second) = (home.min(other), home.max(other));
        Self::new(format!(
            "stage {stage} is on ranks {first} and {second} ({action} on rank {other}); keep a stage on one \
             rank"
        ))
    }
}

/// An action and its place. Prints as `rank 2, action 17 (2F5)`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
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

/// Which actions wait for each other when a replay cannot continue: a cycle, or a chain that ends at a
/// missing action.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Deadlock {
    /// What the links promise, such as `ordered`.
    pub links: String,
    /// The waiting actions. In a cycle the last one waits for the first one.
    pub waits: Vec<Wait>,
    /// Whether it is a cycle.
    pub cycle: bool,
}

/// An action that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The action.
    pub who: ActionPlace,
    /// What it waits for.
    pub why: Reason,
}

/// What an action waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// The result of this action.
    Needs(ActionPlace),
    /// An earlier action of its rank.
    Order(ActionPlace),
    /// An earlier communication in the rank's queue.
    Queue(ActionPlace),
    /// The other end of the transfer.
    Partner(ActionPlace),
    /// The other end of the transfer, which is missing.
    Nobody,
}

impl std::error::Error for Deadlock {}

impl fmt::Display for Deadlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let has = |is: fn(&Reason) -> bool| self.waits.iter().any(|wait| is(&wait.why));
        f.write_str("the schedule cannot end")?;
        if has(|why| matches!(why, Reason::Queue(_) | Reason::Partner(_) | Reason::Nobody)) {
            write!(f, " on {} links", self.links)?;
        }
        f.write_str(match self.cycle {
            true => "; these wait for each other:\n",
            false => "; these wait for what never happens:\n",
        })?;
        for Wait { who, why } in &self.waits {
            writeln!(f, "  {who} {why}")?;
        }
        f.write_str(match (self.cycle, has(|why| matches!(why, Reason::Queue(_)))) {
            (true, true) => {
                "put these transfers in the same order on both ranks, or leave transfers out: lowering \
                 places them safely"
            }
            (true, false) => "move one of them after what it needs",
            (false, _) => "add the missing end, or leave transfers out: lowering places them",
        })
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Needs(place) => write!(f, "needs {place}"),
            Self::Order(place) => write!(f, "comes after {place} in its list"),
            Self::Queue(place) => write!(f, "is queued behind {place}"),
            Self::Partner(place) => write!(f, "waits for {place}"),
            Self::Nobody => f.write_str("has no other end"),
        }
    }
}
