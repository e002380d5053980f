//! What is on its way to one process.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;

use pipewright::fabric::line::{Numbers, Pause};

use super::library::Mpi;
use super::messages::{Kind, Memory, Posted};

/// How many bytes may be on their way to a process before its next sender waits. A single message may have
/// more.
const UNDER_WAY: usize = 1 << 24;

/// How many pieces of memory of small messages are kept, to be used again.
const SPARE: usize = 16;

/// Messages to one process, which have not all gone.
pub(super) struct Posts {
    mpi: &'static Mpi,
    to: u32,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    messages: VecDeque<Posted>,
    /// Their bytes.
    bytes: usize,
    spare: Vec<Vec<u8>>,
}

impl Posts {
    pub(super) fn new(mpi: &'static Mpi, to: u32) -> Self {
        Self { mpi, to, queue: Mutex::default() }
    }

    /// Waits until `bytes` more bytes may be on their way. Returns false if the wait is `over` before.
    pub(super) fn await_room(&self, bytes: usize, over: impl Fn(&Pause) -> bool) -> bool {
        let pause = Pause::begin();
        loop {
            let mut queue = self.queue();
            queue.reclaim();
            if queue.bytes == 0 || queue.bytes + bytes <= UNDER_WAY {
                return true;
            }
            drop(queue);
            if over(&pause) {
                return false;
            }
            pause.rest(thread::sleep);
        }
    }

    /// Sends these numbers as a message of frames, without waiting.
    pub(super) fn post(&self, numbers: Numbers) {
        self.queue().post(self.mpi.posted(self.to, Kind::Frames, Memory::Numbers(numbers)));
    }

    /// Sends a copy of these pieces, as one message, without waiting.
    pub(super) fn copy(&self, kind: Kind, pieces: &[&[u8]]) {
        let mut queue = self.queue();
        let mut copy = queue.spare.pop().unwrap_or_default();
        pieces.iter().for_each(|piece| copy.extend_from_slice(piece));
        queue.post(self.mpi.posted(self.to, kind, Memory::Copy(copy)));
    }

    /// Frees the memory of what has gone, unless another thread is at it.
    pub(super) fn reclaim(&self) {
        match self.queue.try_lock() {
            Ok(mut queue) => queue.reclaim(),
            Err(TryLockError::WouldBlock | TryLockError::Poisoned(_)) => {}
        }
    }

    /// Whether all has gone.
    pub(super) fn has_sent_all(&self) -> bool {
        let mut queue = self.queue();
        queue.reclaim();
        queue.messages.is_empty()
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    fn post(&mut self, message: Posted) {
        self.bytes += message.size();
        self.messages.push_back(message);
        self.reclaim();
    }

    /// Messages go in order, so the first one shows whether any has gone.
    fn reclaim(&mut self) {
        while let Some(first) = self.messages.front_mut() {
            let size = first.size();
            let Some(memory) = first.gone() else { return };
            self.messages.pop_front();
            self.bytes -= size;
            match memory {
                Memory::Copy(mut copy) if self.spare.len() < SPARE => {
                    copy.clear();
                    self.spare.push(copy);
                }
                Memory::Copy(_) | Memory::Numbers(_) => {}
            }
        }
    }
}
