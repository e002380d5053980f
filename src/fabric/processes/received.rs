//! What was received from the other processes, by process.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;

use super::part::{Failure, Order, read};
use super::reader::Heard;
use crate::error::{Error, FabricError, ProcessLoss};
use crate::fabric::feed::Feed;

/// How long one call of [`Received::listen`] may last.
const MOMENT: Duration = Duration::from_millis(100);

/// What was received from the other processes. All are heard at once, so that a silent one does not hide the
/// others.
pub(super) struct Received {
    process: u32,
    heard: Receiver<(u32, Heard)>,
    /// What is told that this process waits.
    feed: Option<Arc<dyn Feed>>,
    /// By process: its blocks, with their numbers, in order.
    parts: Vec<VecDeque<(u64, Vec<u8>)>>,
    /// By process: how it has ended, if it has.
    exits: Vec<Option<Exit>>,
    /// A failure that ends every call.
    failed: Option<Arc<FabricError>>,
}

#[derive(Clone)]
enum Exit {
    /// It left. The text says why, if it was because of a failure.
    Left(String),
    /// It ended without a farewell.
    Lost(ProcessLoss),
    /// It left to join the run again, because this process was lost, or for another one in its own place.
    Rejoins(u32, ProcessLoss),
}

impl Received {
    pub(super) fn new(process: u32, processes: u32, heard: Receiver<(u32, Heard)>) -> Self {
        Self {
            process,
            heard,
            feed: None,
            parts: vec![VecDeque::new(); processes as usize],
            exits: vec![None; processes as usize],
            failed: None,
        }
    }

    /// The same, where this one is told that the process waits.
    pub(super) fn told_by(mut self, feed: Option<Arc<dyn Feed>>) -> Self {
        self.feed = feed;
        self
    }

    /// A process's block, or why there will be none. `None` if it may still come.
    pub(super) fn part(
        &mut self,
        process: u32,
        number: u64,
        call: &str,
    ) -> Option<std::result::Result<Vec<u8>, Failure>> {
        if let Some(error) = &self.failed {
            return Some(Err(Failure::new(Order::Cause, (**error).clone().into())));
        }
        let parts = &mut self.parts[process as usize];
        // Blocks of a call that failed here are of no use.
        while parts.front().is_some_and(|(of, _)| *of < number) {
            parts.pop_front();
        }
        if parts.front().is_some_and(|(of, _)| *of == number)
            && let Some((_, part)) = parts.pop_front()
        {
            return Some(read(process, (self.process, call), &part));
        }
        self.exit_of(process).map(Err)
    }

    /// The failure of the first process that has failed or was lost, if there is one. A process that left
    /// without a failure does not count: it may have done its part.
    pub(super) fn first_failure(&self) -> Option<(u32, Failure)> {
        let processes = 0..self.exits.len() as u32;
        let mut exits = processes.filter_map(|process| Some((process, self.exit_of(process)?)));
        exits.find(|(_, failure)| failure.order != Order::Left)
    }

    fn exit_of(&self, process: u32) -> Option<Failure> {
        let failed = |order, cause| Failure::new(order, Error::Process { process, cause });
        let gone = |process, loss| Failure::new(Order::Lost, Error::ProcessGone { process, loss });
        Some(match self.exits[process as usize].clone()? {
            Exit::Left(cause) if cause.is_empty() => failed(Order::Left, "it has ended".to_owned()),
            Exit::Left(cause) => failed(Order::Cause, cause),
            Exit::Lost(loss) => gone(process, loss),
            Exit::Rejoins(lost, loss) => gone(lost, loss),
        })
    }

    /// The processes that were lost, as far as this one knows.
    pub(super) fn lost(&mut self) -> Vec<u32> {
        while let Ok((process, heard)) = self.heard.try_recv() {
            self.hear(process, heard);
        }
        let lost = (0..).zip(&self.exits).filter_map(|(process, exit)| match exit {
            Some(Exit::Lost(_)) => Some(process),
            Some(Exit::Rejoins(lost, _)) => Some(*lost),
            Some(Exit::Left(_)) | None => None,
        });
        let mut lost: Vec<u32> = lost.collect();
        lost.sort_unstable();
        lost.dedup();
        lost
    }

    /// How a process was lost, as far as this one knows.
    pub(super) fn how_lost(&self, process: u32) -> ProcessLoss {
        if let Some(Exit::Lost(loss)) = self.exits[process as usize] {
            return loss;
        }
        let told = self.exits.iter().find_map(|exit| match exit {
            Some(Exit::Rejoins(lost, loss)) if *lost == process => Some(*loss),
            _ => None,
        });
        told.unwrap_or(ProcessLoss::Unknown)
    }

    /// Waits until any process says something, but not after `until`. Returns whether one did.
    pub(super) fn listen(&mut self, until: Option<Instant>) -> bool {
        let moment = Instant::now() + MOMENT;
        let word = match &self.feed {
            Some(feed) => {
                if self.heard.is_empty() {
                    feed.feed(&|| true);
                }
                self.heard.try_recv().ok()
            }
            None => {
                let until = until.map_or(moment, |until| until.min(moment));
                self.heard.recv_deadline(until).ok()
            }
        };
        let Some((process, heard)) = word else {
            return false;
        };
        self.hear(process, heard);
        true
    }

    fn hear(&mut self, process: u32, heard: Heard) {
        let process = process as usize;
        match heard {
            Heard::Part(number, part) => self.parts[process].push_back((number, part)),
            Heard::Farewell(cause) => self.exits[process] = Some(Exit::Left(cause)),
            Heard::Rejoins(lost, loss) => self.exits[process] = Some(Exit::Rejoins(lost, loss)),
            Heard::Kept => {}
            Heard::Failed(error) => self.failed = Some(error),
            Heard::Ended(loss) => {
                self.exits[process].get_or_insert(Exit::Lost(loss));
            }
        }
    }
}
