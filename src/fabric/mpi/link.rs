//! A line to another process, as messages of MPI.

use std::io::{self, ErrorKind, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crossbeam_channel::Sender;

use super::library::{Arrived, Kind, MOST, Mpi, STUCK};
use crate::fabric::pause::Pause;
use crate::fabric::processes::{BUFFER, Head, Line};

/// A question of a watcher, and the answer.
pub(super) const ASK: [u8; 1] = [b'?'];
pub(super) const ANSWER: [u8; 1] = [b'!'];

/// The line to one process.
pub(super) struct Link {
    mpi: &'static Mpi,
    process: u32,
    /// Nothing is sent or received any more.
    closed: AtomicBool,
    /// The other process has ended its line.
    ended: AtomicBool,
    /// The other process has said nothing for too long.
    lost: AtomicBool,
    /// This process leaves because the run has failed.
    failed: AtomicBool,
    /// Messages may not wait for ever any more.
    hurried: AtomicBool,
    answers: AtomicU64,
}

impl Link {
    pub(super) fn new(mpi: &'static Mpi, process: u32) -> Self {
        Self {
            mpi,
            process,
            closed: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            lost: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            hurried: AtomicBool::new(false),
            answers: AtomicU64::new(0),
        }
    }

    /// The other process.
    pub(super) fn process(&self) -> u32 {
        self.process
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(super) fn is_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Whether the other process counts as gone.
    pub(super) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// Whether this process leaves because the run has failed.
    pub(super) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// From now on the other process counts as gone.
    pub(super) fn lose(&self) {
        self.lost.store(true, Ordering::Release);
        self.closed.store(true, Ordering::Release);
    }

    /// The other process has answered.
    pub(super) fn answered(&self) {
        self.answers.fetch_add(1, Ordering::Relaxed);
    }

    /// Sends one byte to the watcher of the other process.
    pub(super) fn tell_watcher(&self, byte: [u8; 1]) {
        self.mpi
            .send(self.process, Kind::Watch, &byte, |pause| self.is_over(pause));
    }

    /// The next message of frames, if it has come.
    pub(super) fn next(&self) -> Option<Arrived<'_>> {
        let arrived = self.mpi.next(self.process, Kind::Frames)?;
        if arrived.length() == 0 {
            self.ended.store(true, Ordering::Release);
        }
        Some(arrived)
    }

    /// Receives a message into memory of its length.
    pub(super) fn take(&self, arrived: Arrived<'_>, into: &mut [u8]) {
        arrived.take(into, |pause| self.is_over(pause));
    }

    /// Whether a message has waited for too long.
    fn is_over(&self, pause: &Pause) -> bool {
        let may_end = self.hurried.load(Ordering::Relaxed) || self.is_closed();
        may_end && pause.elapsed() > STUCK
    }
}

impl Line for Link {
    fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        // A message without bytes would end the line.
        if bytes.is_empty() {
            return Ok(0);
        }
        if self.is_closed() {
            return Err(ErrorKind::BrokenPipe.into());
        }
        let over = |pause: &Pause| self.is_over(pause);
        Ok(self.mpi.send(self.process, Kind::Frames, bytes, over))
    }

    /// A small block is one message with its head. It is moved in its own memory to make room.
    fn post(&self, head: Head, mut block: Vec<u8>, spare: &Sender<Vec<u8>>) -> io::Result<Option<Vec<u8>>> {
        if self.is_closed() {
            return Err(ErrorKind::BrokenPipe.into());
        }
        let (size, head) = (block.len(), head.to_bytes());
        if size <= BUFFER {
            block.splice(0..0, head);
            let all = 0..block.len();
            self.mpi.post(self.process, Kind::Frames, block, [all], spare);
        } else if size <= MOST {
            block.extend_from_slice(&head);
            let parts = [size..block.len(), 0..size];
            self.mpi.post(self.process, Kind::Frames, block, parts, spare);
        } else {
            return Ok(Some(block));
        }
        Ok(None)
    }

    /// The limit is longer, because a message that waits beyond it ends the job.
    fn limit(&self, _wait: Duration) -> io::Result<()> {
        self.hurried.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn close(&self) {
        if !self.closed.swap(true, Ordering::AcqRel) {
            self.mpi
                .send(self.process, Kind::Frames, &[], |pause| self.is_over(pause));
        }
    }

    fn fail(&self) {
        self.failed.store(true, Ordering::Release);
    }

    fn ask(&self) {
        if !self.is_closed() {
            self.tell_watcher(ASK);
        }
    }

    fn answers(&self) -> u64 {
        self.answers.load(Ordering::Relaxed)
    }
}

/// The bytes that a process sends.
pub(super) struct Incoming {
    link: Arc<Link>,
    /// A message that was longer than what was wanted, and how much of it was read.
    rest: Vec<u8>,
    read: usize,
}

impl Incoming {
    pub(super) fn new(link: Arc<Link>) -> Self {
        Self {
            link,
            rest: Vec::new(),
            read: 0,
        }
    }

    fn take_rest(&mut self, into: &mut [u8]) -> usize {
        let rest = &self.rest[self.read..];
        let most = rest.len().min(into.len());
        into[..most].copy_from_slice(&rest[..most]);
        self.read += most;
        most
    }
}

impl Read for Incoming {
    /// A message goes straight into this memory if it is long enough.
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.read < self.rest.len() || into.is_empty() {
            return Ok(self.take_rest(into));
        }
        let pause = Pause::begin();
        loop {
            if self.link.is_closed() {
                return Err(ErrorKind::ConnectionAborted.into());
            }
            let Some(arrived) = self.link.next() else {
                pause.rest(thread::sleep);
                continue;
            };
            let length = arrived.length();
            if length <= into.len() {
                self.link.take(arrived, &mut into[..length]);
                return Ok(length);
            }
            self.rest.resize(length, 0);
            self.read = 0;
            self.link.take(arrived, &mut self.rest);
            return Ok(self.take_rest(into));
        }
    }
}
