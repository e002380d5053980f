//! How long to wait for the other processes when this one was asked to end.

use std::time::{Duration, Instant};

use super::others::Others;
use crate::error::{CallError, EndsNow, WaitingRank};
use crate::interrupt::Interrupt;

/// The time between two checks. Longer times are counted in checks. While this process itself is stopped, it
/// makes no checks, so that time does not count.
const LOOK: Duration = Duration::from_millis(100);

/// After this many checks without an answer from a process, that process is stopped, or its machine is.
const SILENT: u32 = 50;

/// A SIGTERM is often followed by a SIGKILL half a minute later. After this many checks without progress, the
/// step will most likely not end before that.
const STILL: u32 = 200;

/// Why a call ends before its ranks have answered.
pub(crate) enum Ending {
    /// This process was asked to end.
    Now(EndsNow),
    /// Nothing moves any more: [`CallError::Stalled`].
    Stalled(CallError),
}

impl Ending {
    /// The error of the call. `ranks` are this process's ranks that wait, and `processes` are waited for.
    pub(crate) fn error(self, ranks: Vec<WaitingRank>, processes: Vec<u32>) -> CallError {
        match self {
            Self::Stalled(error) => error,
            Self::Now(why) => CallError::Interrupted { why, ranks, processes },
        }
    }
}

impl From<EndsNow> for Ending {
    fn from(why: EndsNow) -> Self {
        Self::Now(why)
    }
}

/// What the checks have found since this process was asked to end.
#[derive(Default)]
pub(super) struct Patience {
    looked: Option<Instant>,
    /// By process: how many questions it had answered when it was last asked.
    answered: Vec<u64>,
    /// For how many checks one of them has not answered.
    silent: u32,
    progress: Option<u64>,
    /// For how many checks the progress has not changed.
    still: u32,
}

impl Patience {
    /// Returns `Ok` to keep waiting. `progress` is a number that changes whenever a rank of this process
    /// makes progress. It is `None` while one of them works and does not wait for others.
    pub(super) fn look(
        &mut self,
        interrupt: &Interrupt,
        others: &Others,
        progress: Option<u64>,
    ) -> Result<(), EndsNow> {
        if !interrupt.is_requested() {
            return Ok(());
        }
        if interrupt.is_urgent() {
            return Err(EndsNow::Asked);
        }
        if self.looked.is_some_and(|at| at.elapsed() < LOOK) {
            return Ok(());
        }
        self.looked = Some(Instant::now());
        self.listen(others)?;
        match interrupt.is_soon() && others.processes() > 1 {
            true => self.follow(progress),
            false => Ok(()),
        }
    }

    /// Asks all processes to answer, if all have answered the last question.
    fn listen(&mut self, others: &Others) -> Result<(), EndsNow> {
        let all = (0..others.processes()).filter(|process| *process != others.process());
        let is_silent = |process: &u32| {
            let before = self.answered.get(*process as usize);
            before.is_some_and(|before| others.answers(*process) == *before)
        };
        if let Some(process) = all.clone().find(is_silent) {
            self.silent += 1;
            return match self.silent < SILENT {
                true => Ok(()),
                false => Err(EndsNow::Silent(process)),
            };
        }
        self.silent = 0;
        self.answered = (0..others.processes()).map(|process| others.answers(process)).collect();
        all.for_each(|process| others.ask(process));
        Ok(())
    }

    fn follow(&mut self, progress: Option<u64>) -> Result<(), EndsNow> {
        if progress.is_none() || progress != self.progress {
            (self.progress, self.still) = (progress, 0);
        }
        self.still += 1;
        match self.still < STILL || progress.is_none() {
            true => Ok(()),
            false => Err(EndsNow::Still(LOOK * STILL)),
        }
    }
}
