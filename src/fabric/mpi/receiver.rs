//! The thread that receives what the other processes send, and that ends MPI. A rank that waits helps it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::library::{Kind, Mpi, STUCK};
use super::link::{Incoming, Link};
use crate::fabric::feed::Feed;
use crate::fabric::pause::Pause;
use crate::fabric::processes::{Inlet, ReadsFrames, inlet};

/// While a rank has received itself within this time, the thread leaves that to it.
const HELPED: Duration = Duration::from_micros(200);

/// How long the thread sleeps then.
const BESIDE: Duration = Duration::from_micros(100);

/// What the thread and a rank receive by.
pub(super) struct Reception {
    /// `None` before the run begins, and after its end.
    receiver: Mutex<Option<Receiver>>,
    began: Instant,
    /// When a rank looked last, in nanoseconds since it began.
    helped: AtomicU64,
}

impl Reception {
    pub(super) fn new() -> Self {
        Self {
            receiver: Mutex::default(),
            began: Instant::now(),
            helped: AtomicU64::new(0),
        }
    }

    fn receiver(&self) -> MutexGuard<'_, Option<Receiver>> {
        self.receiver.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Receives until this process and all others have closed all lines. Returns false if some have not done
    /// it and are not waited for: then MPI cannot end in order.
    pub(super) fn run(&self, receiver: Receiver) -> bool {
        *self.receiver() = Some(receiver);
        let mut pause = Pause::begin();
        loop {
            let helped = self.began + Duration::from_nanos(self.helped.load(Ordering::Relaxed));
            if helped.elapsed() < HELPED {
                thread::sleep(BESIDE);
                pause = Pause::since(helped);
                continue;
            }
            let mut receiver = self.receiver();
            let Some(receives) = &mut *receiver else {
                return false;
            };
            if receives.look() {
                pause = Pause::begin();
            } else if let Some(all) = receives.is_over() {
                *receiver = None;
                return all;
            } else {
                drop(receiver);
                pause.rest(thread::sleep);
            }
        }
    }
}

impl Feed for Reception {
    fn feed(&self, wants: &dyn Fn() -> bool) -> bool {
        let nanos = self.began.elapsed().as_nanos() as u64;
        self.helped.store(nanos, Ordering::Relaxed);
        match self.receiver.try_lock() {
            Ok(mut receiver) => !wants() || receiver.as_mut().is_some_and(Receiver::look),
            Err(_) => false,
        }
    }
}

/// Receives from all other processes.
pub(super) struct Receiver {
    mpi: &'static Mpi,
    /// By process. `None` for this one.
    links: Vec<Option<Arc<Link>>>,
    /// By process: its frames' reader, until its line has ended.
    readers: Vec<Option<(Box<dyn ReadsFrames>, Inlet)>>,
    /// When this process had closed all lines.
    closed: Option<Instant>,
}

impl Receiver {
    /// `readers`: by process. Empty if nobody wants to know what comes.
    pub(super) fn new(
        mpi: &'static Mpi,
        links: &[Option<Arc<Link>>],
        readers: Vec<Option<Box<dyn ReadsFrames>>>,
    ) -> Self {
        let mut readers = readers.into_iter();
        let reader = |link: &Option<Arc<Link>>| {
            let reader = readers.next().flatten();
            Some((reader?, inlet(Incoming::new(Arc::clone(link.as_ref()?)))))
        };
        Self {
            mpi,
            readers: links.iter().map(reader).collect(),
            links: links.to_vec(),
            closed: None,
        }
    }

    /// Receives the next frame, if one has come. Returns whether one had.
    fn look(&mut self) -> bool {
        self.end_closed();
        let sender = self.mpi.sender(Kind::Frames);
        if let Some(process) = sender {
            self.receive(process as usize);
        }
        sender.is_some()
    }

    /// Receives a frame, or the end of a line.
    fn receive(&mut self, process: usize) {
        if let Some((reader, from)) = &mut self.readers[process] {
            if !reader.frame(from) {
                self.readers[process] = None;
            }
            return;
        }
        // Nobody reads it any more.
        let Some(link) = &self.links[process] else { return };
        if let Some(arrived) = link.next() {
            let mut unread = vec![0; arrived.length()];
            link.take(arrived, &mut unread);
        }
    }

    /// Ends the readers of lines that were closed here: by this process's end, or because the other process
    /// counts as gone.
    fn end_closed(&mut self) {
        for (reader, link) in self.readers.iter_mut().zip(&self.links) {
            let is_closed = link.as_ref().is_some_and(|link| link.is_closed());
            if is_closed && let Some((mut reader, mut from)) = reader.take() {
                // What comes from a closed line is its end.
                reader.frame(&mut from);
            }
        }
    }

    /// Whether nothing more is sent or received, and whether all processes know that.
    fn is_over(&mut self) -> Option<bool> {
        let links = || self.links.iter().flatten();
        if !links().all(|link| link.is_closed()) {
            return None;
        }
        let since = self.closed.get_or_insert_with(Instant::now).elapsed();
        let mut left = links().filter(|link| !link.is_ended()).peekable();
        if left.peek().is_none() {
            // What they did not take, they take before they end MPI.
            return self.mpi.has_sent_all().then_some(true);
        }
        let may_wait = left.any(|link| !link.is_lost());
        let has_failed = links().any(|link| link.has_failed());
        (!may_wait || has_failed && since > STUCK).then_some(false)
    }
}
