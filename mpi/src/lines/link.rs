//! A line to another process, as messages of MPI.

use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pipewright::fabric::line::{Line, Numbers, Pause};

use super::library::{MOST, Mpi};
use super::messages::{Arrived, Kind};
use super::posts::Posts;

/// Numbers of at most this number of bytes are copied behind the beginning of their frame. Larger ones are a
/// message of their own: to copy them would cost more than a message.
const WHOLE: usize = 1 << 14;

/// The most bytes of a message that are copied.
const COPIED: usize = 1 << 20;

/// After a failure of the run, how long a process is waited for.
pub(super) const STUCK: Duration = Duration::from_secs(5);

/// The line to one process.
pub(super) struct Link {
    mpi: &'static Mpi,
    process: u32,
    posts: Posts,
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
}

impl Link {
    pub(super) fn new(mpi: &'static Mpi, process: u32) -> Self {
        Self {
            mpi,
            process,
            posts: Posts::new(mpi, process),
            closed: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            lost: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            hurried: AtomicBool::new(false),
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

    /// Says something to the watcher of the other process.
    pub(super) fn tell_watcher(&self, word: &[u8]) {
        self.posts.copy(Kind::Watch, &[word]);
    }

    /// The next message of frames, if it has come.
    pub(super) fn next(&self) -> Option<Arrived> {
        let arrived = self.mpi.next(self.process, Kind::Frames)?;
        if arrived.length() == 0 {
            self.ended.store(true, Ordering::Release);
        }
        Some(arrived)
    }

    /// What is on its way to the other process.
    pub(super) fn posts(&self) -> &Posts {
        &self.posts
    }

    /// Waits until `bytes` bytes may be sent.
    fn await_room(&self, bytes: usize) -> io::Result<()> {
        let hurried = || self.hurried.load(Ordering::Relaxed);
        let over = |pause: &Pause| self.is_closed() || hurried() && pause.elapsed() > STUCK;
        match !self.is_closed() && self.posts.await_room(bytes, over) {
            true => Ok(()),
            false => Err(ErrorKind::BrokenPipe.into()),
        }
    }
}

impl Line for Link {
    fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        let bytes = &bytes[..bytes.len().min(COPIED)];
        // A message without bytes would end the line.
        if !bytes.is_empty() {
            self.await_room(bytes.len())?;
            self.posts.copy(Kind::Frames, &[bytes]);
        }
        Ok(bytes.len())
    }

    fn posts(&self, bytes: u64) -> bool {
        bytes <= MOST as u64
    }

    fn post(&self, begin: &[u8], numbers: Numbers) -> io::Result<()> {
        let bytes = numbers.bytes();
        self.await_room(bytes.len())?;
        if bytes.len() <= WHOLE {
            self.posts.copy(Kind::Frames, &[begin, bytes]);
        } else {
            self.posts.copy(Kind::Frames, &[begin]);
            self.posts.post(numbers);
        }
        Ok(())
    }

    /// The limit is longer: a process that shares its cores with many may be slow.
    fn limit(&self, _wait: Duration) -> io::Result<()> {
        self.hurried.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn close(&self) {
        if !self.closed.swap(true, Ordering::AcqRel) {
            self.posts.copy(Kind::Frames, &[]);
        }
    }

    fn fail(&self) {
        self.failed.store(true, Ordering::Release);
    }

    fn say(&self, word: &[u8]) {
        if !self.is_closed() {
            self.tell_watcher(word);
        }
    }
}
