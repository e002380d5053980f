//! Replays lists of actions without their work, to see whether they end.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::Result;
use crate::error::ScheduleError;
use crate::id::{Rank, StageId};
use crate::schedule::program::{Id, NONE, Program};
use crate::schedule::{Action, Cell, Flow, LinkKind};

/// Replays lists of actions on these links, one list a rank: a whole schedule or a fragment.
///
/// A send, a receive or a reduction does not stop its rank. A pass waits for the receive that its list
/// announces, and for the passes of its list that it needs. If a fragment neither announces nor makes an
/// input, the input counts as there.
///
/// # Errors
/// [`ScheduleError::Deadlock`] when the replay cannot end. It names who waits for whom, with rank, action and
/// place in the list. Other kinds of [`ScheduleError`] when an action is listed twice or a stage is on two
/// ranks.
pub fn replay(rows: &[Vec<Action>], links: LinkKind) -> Result<()> {
    let stages =
        rows.iter().flatten().map(|action| action.stage().0).max().map_or(0, |last| last.saturating_add(1));
    let cells = rows.iter().flatten().filter_map(|action| action.cell());
    let micro_batches = cells.map(|cell| cell.micro_batch.0).max().map_or(0, |last| last.saturating_add(1));
    let program = Program::index(rows, stages, micro_batches)?;
    if let Some(&(first, second)) = program.twice.first() {
        let (first, second) = (program.place(first).named(), program.place(second).named());
        return Err(
            ScheduleError::new(format!("{second} was already done at {first}; remove one of them")).into()
        );
    }
    let mut homes = vec![None; stages as usize];
    for (rank, row) in (0..).map(Rank).zip(rows) {
        for action in row {
            let home = homes[action.stage().index()].get_or_insert(rank);
            if *home != rank {
                return Err(ScheduleError::on_two_ranks(action.stage(), *home, (rank, action)).into());
            }
        }
    }
    Ok(Replay::new(&program, links).run(|_| ())?)
}

/// An event of a replay. Events come in an order that respects all dependencies.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// A rank has passed this action: a pass is done, a transfer announced, or a reduction started.
    Ran { rank: usize, id: Id, action: Action },
    /// A transfer has happened. The cell is the sender's.
    Moved { send: Id, recv: Id, flow: Flow, cell: Cell },
    /// A reduction has happened.
    Reduced { rank: usize, id: Id, stage: StageId },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Its rank has not reached it.
    Ahead,
    /// Communication that its rank has reached and that has not happened yet.
    Announced,
    Done,
}

/// A replay that cannot go on. It becomes a [`ScheduleError::Deadlock`], which says who waits for whom.
pub(crate) struct Stuck<'a> {
    pub(super) replay: Box<Replay<'a>>,
    /// An action that could not be done.
    pub(super) action: Id,
}

/// A replay under way.
///
/// It goes in rounds. In each round every rank, in order, takes its next action if it can. A waiting rank is
/// skipped until what it waits for is done. So the time of a replay grows with its actions, not with ranks
/// times rounds.
pub(crate) struct Replay<'a> {
    pub(crate) program: &'a Program<'a>,
    pub(crate) links: LinkKind,
    pub(crate) state: Vec<State>,
    /// Each rank's next action.
    pub(crate) next: Vec<Id>,
    /// Each rank's first communication that has not happened. One past the end of its list if all have.
    pub(crate) head: Vec<Id>,
    /// For an action, the rank that waits for it.
    waiter: Vec<u32>,
    /// The ranks to visit in this round and in the next. A rank is in them at most once.
    ready: [BinaryHeap<Reverse<usize>>; 2],
    /// Ranks whose first communication may now be able to happen. Empty between actions.
    look: Vec<usize>,
}

impl<'a> Replay<'a> {
    pub(crate) fn new(program: &'a Program<'a>, links: LinkKind) -> Self {
        let ranks = program.rows().len();
        let mut replay = Self {
            program,
            links,
            state: vec![State::Ahead; program.len()],
            next: (0..ranks).map(|rank| program.start(rank)).collect(),
            head: (0..ranks).map(|rank| program.start(rank)).collect(),
            waiter: vec![NONE; program.len()],
            ready: [(0..ranks).map(Reverse).collect(), BinaryHeap::new()],
            look: Vec::new(),
        };
        (0..ranks).for_each(|rank| replay.find_head(rank));
        replay
    }

    /// Replays to the end, or until no rank can go on.
    pub(crate) fn run(mut self, mut visit: impl FnMut(Event)) -> std::result::Result<(), Stuck<'a>> {
        while !self.ready[0].is_empty() {
            while let Some(Reverse(rank)) = self.ready[0].pop() {
                let id = self.next[rank];
                if id < self.program.start(rank + 1) {
                    self.advance(rank, id, &mut visit);
                }
            }
            self.ready.swap(0, 1);
        }
        match self.left_over() {
            Some(action) => Err(Stuck { replay: Box::new(self), action }),
            None => Ok(()),
        }
    }

    fn advance(&mut self, rank: usize, id: Id, visit: &mut impl FnMut(Event)) {
        let action = self.action(rank, id);
        if let Some(need) = self.missing(action) {
            self.waiter[need as usize] = rank as u32;
            return;
        }
        self.next[rank] += 1;
        self.ready[1].push(Reverse(rank));
        visit(Event::Ran { rank, id, action });
        if !action.is_communication() {
            return self.finish(id, rank);
        }
        self.state[id as usize] = State::Announced;
        match self.links {
            LinkKind::Buffered => {
                self.communicate(id, action, rank, visit);
            }
            LinkKind::Ordered => self.communicate_heads(rank, visit),
        }
    }

    fn action(&self, rank: usize, id: Id) -> Action {
        self.program.rows()[rank][(id - self.program.start(rank)) as usize]
    }

    /// The first unmet need of the action.
    pub(crate) fn missing(&self, action: Action) -> Option<Id> {
        self.program
            .needs(action)
            .into_iter()
            .find(|&need| need != NONE && self.state[need as usize] != State::Done)
    }

    /// Marks the action as done. A rank that waits for it is visited in this round if its turn is still to
    /// come.
    fn finish(&mut self, id: Id, rank: usize) {
        self.state[id as usize] = State::Done;
        let waiter = std::mem::replace(&mut self.waiter[id as usize], NONE);
        if waiter != NONE {
            let waiter = waiter as usize;
            self.ready[usize::from(waiter <= rank)].push(Reverse(waiter));
        }
    }

    /// Carries out this announced communication if it can happen: a reduction, or a transfer that both ends
    /// have announced.
    fn communicate(&mut self, id: Id, action: Action, rank: usize, visit: &mut impl FnMut(Event)) -> bool {
        if let Action::Reduce(stage) = action {
            visit(Event::Reduced { rank: self.program.rank_of(id), id, stage });
            self.finish(id, rank);
            return true;
        }
        let partner = self.program.partner(action);
        if partner == NONE || self.state[partner as usize] != State::Announced {
            return false;
        }
        let (send, recv, sent) = match action {
            Action::Send(..) => (id, partner, Some(action)),
            _ => (partner, id, action.partner()),
        };
        if let Some(Action::Send(flow, cell)) = sent {
            visit(Event::Moved { send, recv, flow, cell });
        }
        self.finish(send, rank);
        self.finish(recv, rank);
        true
    }

    /// Carries out communication that is at the head of all its queues, starting at this rank.
    fn communicate_heads(&mut self, rank: usize, visit: &mut impl FnMut(Event)) {
        self.look.push(rank);
        while let Some(here) = self.look.pop() {
            let id = self.head[here];
            if id == self.program.start(here + 1) || self.state[id as usize] != State::Announced {
                continue;
            }
            let action = self.action(here, id);
            let there = match (action, self.program.partner(action)) {
                (Action::Reduce(_), _) => here,
                (_, NONE) => continue,
                (_, partner) if self.head[self.program.rank_of(partner)] != partner => continue,
                (_, partner) => self.program.rank_of(partner),
            };
            if self.communicate(id, action, rank, visit) {
                self.find_head(here);
                self.find_head(there);
                self.look.extend([here, there]);
            }
        }
    }

    fn find_head(&mut self, rank: usize) {
        let end = self.program.start(rank + 1);
        let mut id = self.head[rank];
        while id < end
            && (self.state[id as usize] == State::Done || !self.action(rank, id).is_communication())
        {
            id += 1;
        }
        self.head[rank] = id;
    }

    /// An action that could not be done: some rank's next action or, on ordered links, a remaining transfer.
    fn left_over(&self) -> Option<Id> {
        let left = |places: &[Id]| {
            (0..places.len())
                .find(|&rank| places[rank] < self.program.start(rank + 1))
                .map(|rank| places[rank])
        };
        left(&self.next).or_else(|| (self.links == LinkKind::Ordered).then(|| left(&self.head)).flatten())
    }
}
