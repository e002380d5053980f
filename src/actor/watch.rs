//! Notices a rank that does not come to an end of an action.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use crate::error::{CallError, WaitingRank};
use crate::id::WorldRank;
use crate::worker::{Progress, Reading, WaitsFor};

/// In how many parts the time limit is watched. A process that was stopped for a while, as by a debugger, loses one part and
/// not all of its time.
const PARTS: u32 = 8;

/// Ranks of this process, and the time that one action of theirs may take.
pub(super) struct Watch<'a> {
    limit: Duration,
    ranks: Vec<Watched<'a>>,
}

/// A rank, what was last seen of it, and for how many parts of the limit nothing has changed.
struct Watched<'a> {
    rank: WorldRank,
    progress: &'a Progress,
    count: u64,
    parts: u32,
}

impl<'a> Watch<'a> {
    /// A watch over these ranks.
    pub(super) fn new(limit: Duration, ranks: impl Iterator<Item = (WorldRank, &'a Progress)>) -> Self {
        let ranks = ranks.map(|(rank, progress)| Watched {
            rank,
            progress,
            count: 0,
            parts: 0,
        });
        Self {
            limit,
            ranks: ranks.collect(),
        }
    }

    /// Waits for the ranks' answers.
    ///
    /// # Errors
    /// [`CallError::Stalled`] when a rank takes longer than the limit for what is its own to do. A rank that waits for others
    /// is not to blame.
    pub(super) fn wait<T>(mut self, answers: impl Future<Output = T>) -> Result<T, CallError> {
        let mut answers = pin!(answers);
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let mut context = Context::from_waker(&waker);
        let part = self.limit / PARTS;
        let mut since = Instant::now();
        loop {
            if let Poll::Ready(answers) = answers.as_mut().poll(&mut context) {
                return Ok(answers);
            }
            thread::park_timeout(part.saturating_sub(since.elapsed()));
            if since.elapsed() >= part {
                since = Instant::now();
                self.look()?;
            }
        }
    }

    /// A part of the limit is over.
    fn look(&mut self) -> Result<(), CallError> {
        let stalled = self.ranks.iter_mut().find_map(Watched::stalled);
        let Some((rank, Reading { index, action, .. })) = stalled else {
            return Ok(());
        };
        Err(CallError::Stalled {
            rank,
            index,
            action: action.to_string(),
            limit: self.limit,
            others: self.ranks.iter().filter_map(Watched::waiting).collect(),
        })
    }
}

impl Watched<'_> {
    /// What the rank has been doing for as long as the limit allows.
    fn stalled(&mut self) -> Option<(WorldRank, Reading)> {
        let busy = self
            .progress
            .read()
            .filter(|reading| reading.waits == WaitsFor::Nobody);
        match busy {
            Some(reading) if reading.count == self.count => self.parts += 1,
            Some(reading) => (self.count, self.parts) = (reading.count, 0),
            None => self.parts = 0,
        }
        busy.filter(|_| self.parts >= PARTS)
            .map(|reading| (self.rank, reading))
    }

    fn waiting(&self) -> Option<WaitingRank> {
        let reading = self.progress.read()?;
        let on = match reading.waits {
            WaitsFor::Nobody => return None,
            WaitsFor::All => None,
            WaitsFor::Rank(rank) => Some(rank),
        };
        Some(WaitingRank {
            rank: self.rank,
            action: reading.action.to_string(),
            on,
        })
    }
}

/// Wakes the thread that waits for answers.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
