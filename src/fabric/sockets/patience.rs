//! How long to wait for the other processes once somebody wants this one to end.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::connection::Connection;
use crate::error::EndsNow;
use crate::interrupt::Interrupt;

/// The time between two looks. What has to last for a while is counted in looks: a process that was stopped
/// itself for a while has not looked meanwhile.
const LOOK: Duration = Duration::from_millis(100);

/// A process that does not answer for so many looks is stopped, or its machine is.
const SILENT: u32 = 50;

/// Who sends a SIGTERM often sends a SIGKILL half a minute later. A step that has not gone on for so many
/// looks will most likely not end before that.
const STILL: u32 = 200;

/// What has been seen since somebody wants this process to end.
#[derive(Default)]
pub(super) struct Patience {
    looked: Option<Instant>,
    /// By process: how often it had answered when it was last asked.
    answered: Vec<u64>,
    /// For how many looks one of them has not answered.
    silent: u32,
    progress: Option<u64>,
    /// For how many looks that has been the progress.
    still: u32,
}

impl Patience {
    /// Whether to go on waiting. `progress` is a number that changes with whatever is done; none while a rank
    /// of this process has something to do itself.
    pub(super) fn look(
        &mut self,
        interrupt: &Interrupt,
        connections: &[Option<Arc<Connection>>],
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
        self.listen(connections)?;
        match interrupt.is_soon() && connections.len() > 1 {
            true => self.follow(progress),
            false => Ok(()),
        }
    }

    /// Asks all processes whether they are there, when all have answered the last time.
    fn listen(&mut self, connections: &[Option<Arc<Connection>>]) -> Result<(), EndsNow> {
        let answers = |connection: &Option<Arc<Connection>>| {
            let connection = connection.as_ref();
            connection.map(|connection| connection.answers())
        };
        let missing = connections
            .iter()
            .zip(&self.answered)
            .position(|(connection, before)| answers(connection).is_some_and(|now| now == *before));
        if let Some(process) = missing {
            self.silent += 1;
            return match self.silent < SILENT {
                true => Ok(()),
                false => Err(EndsNow::Silent(process as u32)),
            };
        }
        self.silent = 0;
        self.answered = connections
            .iter()
            .map(|connection| answers(connection).unwrap_or(0))
            .collect();
        for connection in connections.iter().flatten() {
            connection.ask();
        }
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
