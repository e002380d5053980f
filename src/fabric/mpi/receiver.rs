//! The thread that receives what the other processes send, and that ends MPI.

use std::sync::Arc;
use std::time::Instant;

use super::library::{Kind, Mpi, STUCK};
use super::link::{Incoming, Link};
use super::pause::Pause;
use crate::fabric::processes::{Inlet, ReadsFrames, inlet};

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

    /// Receives until this process and all others have closed all lines. Returns false if some have not done
    /// it and are not waited for: then MPI cannot end in order.
    pub(super) fn run(mut self) -> bool {
        let mut pause = Pause::begin();
        loop {
            self.end_closed();
            if let Some(process) = self.mpi.sender(Kind::Frames) {
                self.receive(process as usize);
                pause = Pause::begin();
            } else if let Some(all) = self.is_over() {
                return all;
            } else {
                pause.rest();
            }
        }
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
            return Some(true);
        }
        let may_wait = left.any(|link| !link.is_lost());
        let has_failed = links().any(|link| link.has_failed());
        (!may_wait || has_failed && since > STUCK).then_some(false)
    }
}
