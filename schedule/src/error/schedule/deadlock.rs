//! Why a replay cannot continue.

use std::fmt;

use super::ActionPlace;

/// Which actions wait for each other when a replay cannot continue: a cycle, or a chain that ends at a
/// missing action.
#[derive(Clone, Debug, PartialEq, Eq)]
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
