//! The other processes, as a thread that watches sees them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::connection::{Connection, leave};
use super::status_queries::Aside;
use crate::error::{CallError, ProcessLoss};

/// The other processes of a run. Asking them what they do waits for nobody, and does not disturb the run.
#[derive(Clone)]
pub(crate) struct Others {
    process: u32,
    /// By process. `None` for this one.
    connections: Vec<Option<Arc<Connection>>>,
    aside: Arc<Aside>,
    stalled: Arc<Mutex<Option<CallError>>>,
    /// If another process may take the place of one that is lost: is set when this one leaves for that.
    left: Option<Arc<AtomicBool>>,
}

impl Others {
    pub(super) fn new(
        process: u32,
        connections: Vec<Option<Arc<Connection>>>,
        aside: Arc<Aside>,
        left: Option<Arc<AtomicBool>>,
    ) -> Self {
        Self { process, connections, aside, stalled: Arc::default(), left }
    }

    /// This process's number.
    pub(crate) fn process(&self) -> u32 {
        self.process
    }

    /// The number of processes.
    pub(crate) fn processes(&self) -> u32 {
        self.connections.len() as u32
    }

    /// From now on this says to others what this process does.
    pub(crate) fn tell_by(&self, tell: impl Fn() -> Vec<u8> + Send + Sync + 'static) {
        self.aside.tell_by(Box::new(tell));
    }

    /// Asks another process what it does.
    pub(crate) fn ask(&self, process: u32) {
        if let Some(connection) = self.connection(process) {
            connection.line().say(Aside::QUESTION);
        }
    }

    /// How many questions a process has answered.
    pub(crate) fn answers(&self, process: u32) -> u64 {
        self.aside.answers(process)
    }

    /// What it said last. Empty if it has not begun.
    pub(crate) fn said(&self, process: u32) -> Vec<u8> {
        self.aside.said(process)
    }

    /// A number that changes whenever something comes from a process.
    pub(crate) fn heard(&self, process: u32) -> u64 {
        self.connection(process).map_or(0, |connection| connection.heard() + self.aside.answers(process))
    }

    /// While a process does not answer: whether its machine does, if that can be known.
    pub(crate) fn machine_answers(&self, process: u32) -> Option<bool> {
        self.connection(process)?.line().machine_answers()
    }

    /// Whether a process has ended, or its connection has.
    pub(crate) fn has_ended(&self, process: u32) -> bool {
        self.connection(process).is_some_and(|connection| connection.has_ended())
    }

    /// Asks another process to look for a stall.
    pub(crate) fn nudge(&self, process: u32) {
        if let Some(connection) = self.connection(process) {
            connection.line().say(Aside::NUDGE);
        }
    }

    /// How often others have asked this process to look for a stall.
    pub(crate) fn nudges(&self) -> u64 {
        self.aside.nudges()
    }

    /// Ends the call that this process is in: nothing moves any more.
    pub(crate) fn end_call(&self, why: CallError) {
        *self.stalled.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
    }

    /// Whether the run goes on when another process takes the place of a lost one.
    pub(crate) fn replaces(&self) -> bool {
        self.left.is_some()
    }

    /// These processes hold all up. So they count as lost; if this one is among them, it leaves.
    pub(crate) fn give_up(&self, processes: &[u32]) {
        if processes.contains(&self.process) {
            if let Some(left) = &self.left {
                left.store(true, Ordering::Relaxed);
            }
            return leave(&self.connections, (self.process, ProcessLoss::Stalled));
        }
        for process in processes {
            if let Some(connection) = self.connection(*process) {
                connection.give_up(*process);
            }
        }
    }

    /// Why the call ends, if it does.
    pub(super) fn take_stalled(&self) -> Option<CallError> {
        self.stalled.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn connection(&self, process: u32) -> Option<&Connection> {
        self.connections.get(process as usize)?.as_deref()
    }
}
