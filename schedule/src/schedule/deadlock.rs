//! Follows who waits for whom in a replay that cannot go on.

use crate::Error;
use crate::error::schedule::{Deadlock, Reason, ScheduleError, Wait};
use crate::schedule::LinkKind;
use crate::schedule::program::{Id, NONE};
use crate::schedule::replay::{Replay, State, Stuck};

impl From<Stuck<'_>> for Error {
    fn from(stuck: Stuck<'_>) -> Self {
        ScheduleError::from(explain(&stuck.replay, stuck.action)).into()
    }
}

/// Follows who waits for whom from this action, until the chain comes round or ends.
fn explain(replay: &Replay<'_>, stuck: Id) -> Deadlock {
    let mut path = vec![stuck];
    let mut waits = Vec::new();
    let first = loop {
        let id = path[path.len() - 1];
        let (why, next) = next(replay, id);
        waits.push(Wait { who: replay.program.place(id).named(), why });
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
    Deadlock { links: replay.links.to_string(), waits, cycle: first.is_some() }
}

/// What an action waits for.
fn next(replay: &Replay<'_>, id: Id) -> (Reason, Id) {
    let at = replay.program.place(id);
    let place = |id| replay.program.place(id).named();
    if replay.state[id as usize] == State::Ahead {
        let first = replay.next[at.rank.index()];
        return match replay.missing(at.action).filter(|_| id == first) {
            Some(need) => (Reason::Needs(place(need)), need),
            None => (Reason::Order(place(first)), first),
        };
    }
    let head = replay.head[at.rank.index()];
    if replay.links == LinkKind::Ordered && id != head {
        return (Reason::Queue(place(head)), head);
    }
    match replay.program.partner(at.action) {
        NONE => (Reason::Nobody, NONE),
        partner => (Reason::Partner(place(partner)), partner),
    }
}
