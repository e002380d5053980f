//! Detects a rank that stalls in an action.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use crate::error::{CallError, EndsNow, WaitingRank};
use crate::id::WorldRank;
use crate::worker::{Progress, Reading, WaitsFor};

/// The time limit is counted in this many parts. If the process was stopped for a while, for example by a
/// debugger, only one part is lost and not the whole limit.
const PARTS: u32 = 8;

/// The longest time between two calls of [`KeepWaiting`].
const LOOK: Duration = Duration::from_millis(100);

/// Returns `Ok` to keep waiting, or the reason to end. Its argument is a number that changes whenever a rank
/// makes progress. It is `None` while a rank works and does not wait for others.
pub(super) type KeepWaiting<'a> = &'a dyn Fn(Option<u64>) -> Result<(), EndsNow>;

/// This process's ranks, and the longest time that one of their actions may take.
pub(super) struct Watch<'a> {
    limit: Option<Duration>,
    ranks: Vec<Watched<'a>>,
}

/// A rank, its last reading, and for how many parts of the limit that reading has not changed.
struct Watched<'a> {
    rank: WorldRank,
    progress: &'a Progress,
    count: u64,
    parts: u32,
}

impl<'a> Watch<'a> {
    /// A watch over these ranks. Without a limit, an action may take any time.
    pub(super) fn new(
        limit: Option<Duration>,
        ranks: impl Iterator<Item = (WorldRank, &'a Progress)>,
    ) -> Self {
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
    /// [`CallError::Stalled`] when a rank takes longer than the limit for an action, without waiting for
    /// another rank. [`CallError::Interrupted`] when `keep_waiting` returns a reason to end.
    pub(super) fn wait<T>(
        mut self,
        answers: impl Future<Output = T>,
        keep_waiting: KeepWaiting<'_>,
    ) -> Result<T, CallError> {
        let mut answers = pin!(answers);
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let mut context = Context::from_waker(&waker);
        let part = self.limit.map_or(Duration::MAX, |limit| limit / PARTS);
        let mut since = Instant::now();
        loop {
            if let Poll::Ready(answers) = answers.as_mut().poll(&mut context) {
                return Ok(answers);
            }
            keep_waiting(self.progress()).map_err(|why| self.interrupted(why))?;
            thread::park_timeout(part.saturating_sub(since.elapsed()).min(LOOK));
            if since.elapsed() >= part {
                since = Instant::now();
                self.look()?;
            }
        }
    }

    /// One part of the limit has passed.
    fn look(&mut self) -> Result<(), CallError> {
        let stalled = self.ranks.iter_mut().find_map(Watched::stalled);
        let Some((rank, Reading { index, action, .. })) = stalled else {
            return Ok(());
        };
        Err(CallError::Stalled {
            rank,
            index,
            action: action.to_string(),
            limit: self.limit.unwrap_or(Duration::MAX),
            others: self.waiting(),
        })
    }

    /// A number that changes whenever a rank makes progress. `None` while a rank works and does not wait for
    /// others.
    fn progress(&self) -> Option<u64> {
        let readings = || self.ranks.iter().filter_map(|watched| watched.progress.read());
        let all_wait = readings().all(|reading| reading.waits != WaitsFor::Nobody);
        (all_wait && readings().next().is_some()).then(|| readings().map(|reading| reading.count).sum())
    }

    fn interrupted(&self, why: EndsNow) -> CallError {
        CallError::Interrupted {
            why,
            ranks: self.waiting(),
            processes: Vec::new(),
        }
    }

    fn waiting(&self) -> Vec<WaitingRank> {
        self.ranks.iter().filter_map(Watched::waiting).collect()
    }
}

impl Watched<'_> {
    /// The rank that has stalled, and its reading.
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
