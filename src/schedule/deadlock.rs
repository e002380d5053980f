//! Why a replay cannot go on.

use std::fmt;

use crate::Error;
use crate::schedule::Links;
use crate::schedule::program::{Id, NONE, Place};
use crate::schedule::replay::{Replay, State, Stuck};

/// Who waits for whom when a replay cannot go on: a cycle, or a chain that ends at what nobody does.
#[derive(Clone, Debug)]
struct Deadlock {
    links: Links,
    waits: Vec<Wait>,
    cycle: bool,
}

#[derive(Clone, Copy, Debug)]
struct Wait {
    who: Place,
    why: Why,
}

/// What a place waits for.
#[derive(Clone, Copy, Debug)]
enum Why {
    Needs(Place),
    /// The rank comes to another place first.
    Order(Place),
    /// Other communication is ahead in the rank's queue.
    Queue(Place),
    Partner(Place),
    Nobody,
}

impl Deadlock {
    /// Follows who waits for whom from this action, until it comes round or ends.
    fn explain(replay: &Replay<'_>, stuck: Id) -> Self {
        let mut path = vec![stuck];
        let mut waits = Vec::new();
        let first = loop {
            let id = path[path.len() - 1];
            let (why, next) = next(replay, id);
            waits.push(Wait {
                who: replay.program.place(id),
                why,
            });
            if next == NONE {
                break None;
            }
            if let Some(first) = path.iter().position(|&seen| seen == next) {
                break Some(first);
            }
            path.push(next);
        };
        if let Some(first) = first {
            waits.drain(..first);
            let lowest = (0..waits.len()).min_by_key(|&index| path[first + index]);
            waits.rotate_left(lowest.unwrap_or(0));
        }
        Self {
            links: replay.links,
            waits,
            cycle: first.is_some(),
        }
    }
}

fn next(replay: &Replay<'_>, id: Id) -> (Why, Id) {
    let Place { rank, action, .. } = replay.program.place(id);
    let place = |id| replay.program.place(id);
    if replay.state[id as usize] == State::Ahead {
        let at = replay.next[rank.index()];
        return match replay.missing(action).filter(|_| id == at) {
            Some(need) => (Why::Needs(place(need)), need),
            None => (Why::Order(place(at)), at),
        };
    }
    let head = replay.head[rank.index()];
    if replay.links == Links::Ordered && id != head {
        return (Why::Queue(place(head)), head);
    }
    match replay.program.partner(action) {
        NONE => (Why::Nobody, NONE),
        partner => (Why::Partner(place(partner)), partner),
    }
}

impl fmt::Display for Deadlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.cycle {
            "these wait for each other"
        } else {
            "these wait for what never happens"
        };
        let linked = self
            .waits
            .iter()
            .any(|wait| matches!(wait.why, Why::Queue(_) | Why::Partner(_) | Why::Nobody));
        let on = if linked {
            format!(" on {} links", self.links)
        } else {
            String::new()
        };
        writeln!(f, "the schedule cannot end{on}; {what}:")?;
        for Wait { who, why } in &self.waits {
            write!(f, "  {who} ")?;
            match why {
                Why::Needs(place) => writeln!(f, "needs {place}"),
                Why::Order(place) => writeln!(f, "comes after {place} in its list"),
                Why::Queue(place) => writeln!(f, "is queued behind {place}"),
                Why::Partner(place) => writeln!(f, "waits for {place}"),
                Why::Nobody => writeln!(f, "has no other end"),
            }?;
        }
        let queued = self.waits.iter().any(|wait| matches!(wait.why, Why::Queue(_)));
        f.write_str(match (self.cycle, queued) {
            (true, true) => {
                "put these transfers in the same order on both ranks, or leave transfers out: lowering \
                 places them \
                 safely"
            }
            (true, false) => "move one of them behind what it needs",
            (false, _) => "add the missing end, or leave transfers out: lowering places them",
        })
    }
}

impl From<Stuck<'_>> for Error {
    fn from(stuck: Stuck<'_>) -> Self {
        Self::Invalid(Deadlock::explain(&stuck.replay, stuck.action).to_string())
    }
}
