//! What the other processes have said, sorted by process.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use crossbeam_channel::{Receiver, RecvTimeoutError};

use super::part::{Failure, Order, read};
use super::reader::Heard;
use crate::error::{Error, FabricError, Result};

/// What the other processes have said. They are heard all at once, so that one that says nothing hides none
/// that does.
pub(super) struct Ears {
    process: u32,
    heard: Receiver<(u32, Heard)>,
    /// By process: its parts in what all do, with their numbers, in order.
    parts: Vec<VecDeque<(u64, Vec<u8>)>>,
    /// By process: the end it has come to, if it has.
    ends: Vec<Option<End>>,
    /// What ends every call.
    failed: Option<Arc<FabricError>>,
}

#[derive(Clone)]
enum End {
    /// It left, and said why if it was for a failure.
    Left(String),
    /// It ended without a word.
    Lost,
}

impl Ears {
    pub(super) fn new(process: u32, processes: u32, heard: Receiver<(u32, Heard)>) -> Self {
        Self {
            process,
            heard,
            parts: vec![VecDeque::new(); processes as usize],
            ends: vec![None; processes as usize],
            failed: None,
        }
    }

    /// What a process has said of its part in what all do, or why it will say nothing; none as long as it
    /// may.
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
        // What is left of a call that failed here is of no use.
        while parts.front().is_some_and(|(of, _)| *of < number) {
            parts.pop_front();
        }
        if parts.front().is_some_and(|(of, _)| *of == number)
            && let Some((_, part)) = parts.pop_front()
        {
            return Some(read(process, (self.process, call), &part));
        }
        let failed = |order, cause| Failure::new(order, Error::Process { process, cause });
        Some(Err(match self.ends[process as usize].clone()? {
            End::Left(cause) if cause.is_empty() => failed(Order::Left, "it has ended".to_owned()),
            End::Left(cause) => failed(Order::Cause, cause),
            End::Lost => Failure::new(Order::Lost, Error::ProcessGone(process)),
        }))
    }

    /// Waits for a word of any process, no longer than `until`; whether one came.
    pub(super) fn listen(&mut self, until: Option<Instant>) -> bool {
        let word = match until {
            Some(until) => self.heard.recv_deadline(until),
            None => self.heard.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        let Ok((process, heard)) = word else { return false };
        let process = process as usize;
        match heard {
            Heard::Part(number, part) => self.parts[process].push_back((number, part)),
            Heard::Farewell(cause) => self.ends[process] = Some(End::Left(cause)),
            Heard::Failed(error) => self.failed = Some(error),
            Heard::Ended => {
                self.ends[process].get_or_insert(End::Lost);
            }
        }
        true
    }

    /// A process's part, as soon as it says it.
    pub(super) fn wait_for(&mut self, process: u32, number: u64, call: &str) -> Result<Vec<u8>> {
        loop {
            if let Some(part) = self.part(process, number, call) {
                return part.map_err(|failure| failure.error);
            }
            self.listen(None);
        }
    }
}
