//! What one process sends: messages go straight into the memory where their bytes stay.
//!
//! Nothing here waits. So while a large message of one process is on its way, messages of others are
//! received.

use std::mem;
use std::sync::Arc;

use pipewright::fabric::line::FromProcess;

use super::link::Link;
use super::messages::{Arrived, Receiving};

/// What comes from one process.
pub(super) struct Incoming {
    link: Arc<Link>,
    from: FromProcess,
    receiving: Option<Receiving>,
}

impl Incoming {
    pub(super) fn new(link: Arc<Link>, from: FromProcess) -> Self {
        Self { link, from, receiving: None }
    }

    /// Whether a message is on its way.
    pub(super) fn is_receiving(&self) -> bool {
        self.receiving.is_some()
    }

    /// Does what it can without waiting. Returns whether a message has come.
    pub(super) fn advance(&mut self) -> bool {
        if let Some(receiving) = &mut self.receiving {
            let is_done = receiving.is_done();
            if is_done {
                self.receiving = None;
                self.from.filled();
            }
            return is_done;
        }
        let arrived = self.link.next();
        let has_come = arrived.is_some();
        if let Some(arrived) = arrived {
            self.receive(arrived);
        }
        has_come
    }

    fn receive(&mut self, arrived: Arrived) {
        if arrived.length() == 0 {
            arrived.take(&mut []);
            return self.from.end();
        }
        let into = self.from.room(arrived.length());
        // SAFETY: it stays where it is, and nobody uses it, until this has said that it is filled.
        #[allow(unsafe_code, reason = "MPI writes to the memory after this call")]
        let mut receiving = unsafe { arrived.start(into) };
        if receiving.is_done() {
            self.from.filled();
        } else {
            self.receiving = Some(receiving);
        }
    }

    /// The line has ended.
    pub(super) fn end(&mut self) {
        self.from.end();
    }
}

impl Drop for Incoming {
    /// MPI may still write to memory, if the end of the run has not waited for all.
    fn drop(&mut self) {
        if self.receiving.is_some() {
            mem::forget(mem::take(&mut self.from));
        }
    }
}
