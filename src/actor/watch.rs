//! Waits for the answers of this process's ranks, on the thread that makes the calls.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use crate::error::{CallError, WaitingRank};
use crate::fabric::Ending;
use crate::id::WorldRank;
use crate::worker::{Progress, WaitsFor};

/// The longest time between two calls of [`KeepWaiting`].
const LOOK: Duration = Duration::from_millis(100);

/// Returns `Ok` to keep waiting, or the reason to end. Its argument is a number that changes whenever a rank
/// makes progress. It is `None` while a rank works and does not wait for others.
pub(super) type KeepWaiting<'a> = &'a dyn Fn(Option<u64>) -> Result<(), Ending>;

/// This process's ranks, while their answers are waited for.
pub(super) struct Watch<'a>(Vec<(WorldRank, &'a Progress)>);

impl<'a> Watch<'a> {
    pub(super) fn new(ranks: impl Iterator<Item = (WorldRank, &'a Progress)>) -> Self {
        Self(ranks.collect())
    }

    /// Waits for the ranks' answers.
    ///
    /// # Errors
    /// When `keep_waiting` returns a reason to end.
    pub(super) fn wait<T>(
        &self,
        answers: impl Future<Output = T>,
        keep_waiting: KeepWaiting<'_>,
    ) -> Result<T, CallError> {
        let mut answers = pin!(answers);
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let mut context = Context::from_waker(&waker);
        loop {
            if let Poll::Ready(answers) = answers.as_mut().poll(&mut context) {
                return Ok(answers);
            }
            keep_waiting(self.progress()).map_err(|ending| ending.error(self.waiting(), Vec::new()))?;
            thread::park_timeout(LOOK);
        }
    }

    /// A number that changes whenever a rank makes progress. `None` while a rank works and does not wait for
    /// others.
    fn progress(&self) -> Option<u64> {
        let readings = || self.0.iter().filter_map(|(_, progress)| progress.read());
        let all_wait = readings().all(|reading| awaited(reading.waits).is_some());
        (all_wait && readings().next().is_some()).then(|| readings().map(|reading| reading.count).sum())
    }

    fn waiting(&self) -> Vec<WaitingRank> {
        let ranks = self.0.iter();
        let waiting = ranks.filter_map(|(rank, progress)| {
            let reading = progress.read()?;
            let (_, action) = reading.action?;
            Some(WaitingRank { rank: *rank, action: action.to_string(), on: awaited(reading.waits)? })
        });
        waiting.collect()
    }
}

/// The rank that a rank waits for: `Some(None)` for all others. `None` if it waits for no rank.
fn awaited(waits: WaitsFor) -> Option<Option<WorldRank>> {
    match waits {
        WaitsFor::Nobody | WaitsFor::Data => None,
        WaitsFor::All => Some(None),
        WaitsFor::Rank(rank) | WaitsFor::Shard(rank) => Some(Some(rank)),
    }
}

/// Wakes the thread that waits for answers.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
