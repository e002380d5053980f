//! What this process's ranks do, and for how long they have stayed where they are.

use std::sync::Arc;
use std::time::Duration;

use super::caller::CallerProgress;
use super::typical_wait::TypicalWait;
use crate::id::{MicroBatch, WorldRank};
use crate::schedule::{Action, Flow, Pass};
use crate::situation::{Awaited, Doing, Part, Program, RankState, Waits};
use crate::worker::{Progress, Reading, WaitsFor};

/// For so long, what was found when others were asked is told.
const LATELY: Duration = Duration::from_secs(5);

/// What is known of this process. It looks at its ranks ten times a second, which costs the ranks nothing.
pub(super) struct Board {
    calls: Arc<CallerProgress>,
    usual: TypicalWait,
    ranks: Vec<Watched>,
    /// The call at the last look.
    at: (String, u64),
    part: Part,
    /// For how long the program has been there.
    stayed: Duration,
    /// The processes that did not answer when they were asked, and the time since then.
    unheard: Vec<u32>,
    since_asked: Duration,
}

/// A rank, what it did at the last look, and for how long it has done nothing else.
struct Watched {
    rank: WorldRank,
    progress: Arc<Progress>,
    mark: (u64, Option<usize>),
    stayed: Duration,
}

impl Board {
    pub(super) fn new(
        calls: Arc<CallerProgress>,
        usual: TypicalWait,
        ranks: impl Iterator<Item = (WorldRank, Arc<Progress>)>,
    ) -> Self {
        let watched = |(rank, progress)| Watched { rank, progress, mark: (0, None), stayed: Duration::ZERO };
        Self {
            calls,
            usual,
            ranks: ranks.map(watched).collect(),
            at: (String::new(), 0),
            part: Part::default(),
            stayed: Duration::ZERO,
            unheard: Vec::new(),
            since_asked: Duration::ZERO,
        }
    }

    /// These processes did not answer when they were asked, just now.
    pub(super) fn set_unheard(&mut self, unheard: Vec<u32>) {
        (self.unheard, self.since_asked) = (unheard, Duration::ZERO);
    }

    /// Looks at all ranks. So much time has passed since the last look. In a steady step it allocates
    /// nothing.
    pub(super) fn look(&mut self, passed: Duration) {
        self.since_asked += passed;
        for watched in &mut self.ranks {
            let reading = watched.progress.read();
            let mark = reading.map_or((0, None), |reading| (reading.count, reading.layer));
            if mark == watched.mark {
                watched.stayed += passed;
            } else {
                // A rank without work has not stayed anywhere.
                if watched.mark.0 > 0 {
                    self.usual.stayed(&self.at.0, watched.stayed);
                }
                (watched.mark, watched.stayed) = (mark, Duration::ZERO);
            }
        }
        let at = self.calls.read();
        if at.count == self.at.1 {
            self.stayed += passed;
            return;
        }
        if self.part != Part::Ranks {
            self.usual.stayed(&self.at.0, self.stayed);
        }
        self.part = at.part;
        if !self.at.0.is_empty() {
            self.usual.ended(&self.at.0);
        }
        self.at.0.clear();
        self.at.0.push_str(&at.what);
        (self.at.1, self.stayed) = (at.count, Duration::ZERO);
    }

    /// Longer than this is a stall. `None`: any time may pass.
    pub(super) fn usual(&self) -> Option<Duration> {
        self.usual.most(&self.at.0)
    }

    /// The longest time for which anybody here has stayed where they are.
    pub(super) fn longest(&self) -> Duration {
        let ranks = self.ranks.iter().map(|watched| watched.stayed);
        ranks.fold(self.stayed, Duration::max)
    }

    /// What this process does.
    pub(super) fn program(&self) -> Program {
        let at = self.calls.read();
        Program {
            call: (!at.what.is_empty()).then(|| at.what.clone()),
            part: at.part,
            seconds: self.stayed.as_secs_f64(),
            usual: self.usual().map(|time| time.as_secs_f64()),
            unheard: match self.since_asked < LATELY {
                true => self.unheard.clone(),
                false => Vec::new(),
            },
            source: self.calls.source().clone(),
            ranks: self.ranks.iter().map(Watched::state).collect(),
        }
    }
}

impl Watched {
    fn state(&self) -> RankState {
        let reading = self.progress.read();
        // It may have moved since the last look.
        let is_there = reading.is_none_or(|reading| (reading.count, reading.layer) == self.mark);
        let stayed = if is_there { self.stayed } else { Duration::ZERO };
        RankState {
            rank: self.rank,
            doing: reading.map_or(Doing::Nothing, |reading| self.doing(reading)),
            waits: reading.map_or(Waits::Not, waits),
            seconds: stayed.as_secs_f64(),
        }
    }

    fn doing(&self, reading: Reading) -> Doing {
        let Some((index, action)) = reading.action else {
            return Doing::Call;
        };
        let (stage, layer) = match action {
            Action::Compute(_, cell) => (cell.stage, reading.layer),
            Action::Send(_, cell) | Action::Recv(_, cell) => (cell.stage, None),
            Action::Reduce(stage) | Action::Step(stage) => (stage, None),
        };
        Doing::Action { index, action: action.to_string(), stage, layers: self.progress.layers(stage, layer) }
    }
}

/// Whom a rank waits for. The action says what for.
fn waits(reading: Reading) -> Waits {
    let action = reading.action.map(|(_, action)| action);
    match reading.waits {
        WaitsFor::Nobody => Waits::Not,
        WaitsFor::All => Waits::All,
        WaitsFor::Data => Waits::Data {
            step: reading.step,
            micro_batch: match action {
                Some(Action::Compute(_, cell)) => cell.micro_batch,
                _ => MicroBatch(0),
            },
        },
        WaitsFor::Shard(rank) => Waits::Rank(rank, Awaited::Shard),
        WaitsFor::Rank(rank) => {
            let awaited = match action {
                Some(Action::Compute(Pass::Forward, cell)) => Awaited::Activation(cell.micro_batch),
                Some(Action::Compute(Pass::Backward | Pass::BackwardInput, cell)) => {
                    Awaited::Gradient(cell.micro_batch)
                }
                Some(Action::Send(Flow::Activation | Flow::Gradient, _)) => Awaited::Room,
                _ => Awaited::Block,
            };
            Waits::Rank(rank, awaited)
        }
    }
}
