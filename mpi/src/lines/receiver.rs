//! The thread that receives what the other processes send, and that ends MPI. A rank that waits helps it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use pipewright::fabric::line::{Feed, FromProcess, Pause};

use super::incoming::Incoming;
use super::library::Mpi;
use super::link::{Link, STUCK};
use super::messages::Kind;

/// While a rank has received itself within this time, the thread leaves that to it.
const HELPED: Duration = Duration::from_micros(200);

/// How long the thread sleeps then. Where ranks share cores, each time that it wakes up takes time from them.
const BESIDE: Duration = Duration::from_millis(1);

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
        Self { receiver: Mutex::default(), began: Instant::now(), helped: AtomicU64::new(0) }
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
    /// By process.
    incoming: Vec<Option<Incoming>>,
    /// When this process had closed all lines.
    closed: Option<Instant>,
    /// When all others had done that too.
    ended: Option<Instant>,
}

impl Receiver {
    /// `from`: by process. Empty if nobody wants to know what comes.
    pub(super) fn new(
        mpi: &'static Mpi,
        links: &[Option<Arc<Link>>],
        from: Vec<Option<FromProcess>>,
    ) -> Self {
        let mut from = from.into_iter();
        let incoming = |link: &Option<Arc<Link>>| {
            let from = from.next().flatten().unwrap_or_default();
            Some(Incoming::new(Arc::clone(link.as_ref()?), from))
        };
        Self {
            mpi,
            incoming: links.iter().map(incoming).collect(),
            links: links.to_vec(),
            closed: None,
            ended: None,
        }
    }

    /// Receives what it can without waiting. Returns whether a message has come.
    fn look(&mut self) -> bool {
        self.end_closed();
        let mut has_come = self.advance(Incoming::is_receiving);
        if let Some(process) = self.mpi.sender(Kind::Frames) {
            has_come |= match &mut self.incoming[process as usize] {
                // Its next message hides messages of others.
                Some(incoming) if incoming.is_receiving() => {
                    self.advance(|incoming| !incoming.is_receiving())
                }
                Some(incoming) => incoming.advance(),
                None => false,
            };
        }
        if !has_come {
            let links = self.links.iter().flatten();
            links.for_each(|link| link.posts().reclaim());
        }
        has_come
    }

    /// Advances all that are of a `kind`. Returns whether a message has come.
    fn advance(&mut self, kind: impl Fn(&Incoming) -> bool) -> bool {
        let incoming = self.incoming.iter_mut().flatten();
        let advanced = incoming.filter(|incoming| kind(incoming)).map(Incoming::advance);
        advanced.fold(false, |any, has_come| any | has_come)
    }

    /// Ends the lines that were closed here: by this process's end, or because the other process
    /// counts as gone.
    fn end_closed(&mut self) {
        for (incoming, link) in self.incoming.iter_mut().zip(&self.links) {
            if let (Some(incoming), Some(link)) = (incoming, link)
                && link.is_closed()
            {
                incoming.end();
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
            let has_sent_all = links().all(|link| link.posts().has_sent_all());
            let since = self.ended.get_or_insert_with(Instant::now).elapsed();
            return (has_sent_all || since > STUCK).then_some(has_sent_all);
        }
        let may_wait = left.any(|link| !link.is_lost());
        let has_failed = links().any(|link| link.has_failed());
        (!may_wait || has_failed && since > STUCK).then_some(false)
    }
}
