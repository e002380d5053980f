//! Requests that wait for the model, which answers one at a time.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc::UnboundedSender;

use super::request::Request;
use super::scored::Scored;

/// What is told of an answer while it is written.
#[derive(Debug)]
pub(super) enum Told {
    /// A token with its probability, of the text with this number.
    Scored(usize, Scored),
    /// The next part of a text.
    Text(usize, String),
    /// A text has ended, by itself or because it is as long as it may be. Then its number of tokens.
    End(usize, bool, usize),
    /// It cannot be answered.
    Failed(String),
}

/// A request that waits, and whom its answer is told.
pub(super) struct Job {
    pub(super) request: Request,
    pub(super) to: UnboundedSender<Told>,
}

impl Job {
    /// Whether somebody still waits for the answer.
    pub(super) fn is_wanted(&self) -> bool {
        !self.to.is_closed()
    }
}

/// Jobs that wait, the oldest first.
pub(super) struct Queue {
    most: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Job>,
    /// Whether a job is worked on.
    is_busy: bool,
    is_closed: bool,
}

impl Queue {
    /// A queue in which up to `most` jobs wait, besides the one that is worked on.
    pub(super) fn new(most: usize) -> Self {
        Self { most, state: Mutex::default(), changed: Condvar::new() }
    }

    /// Adds a job. Returns `false` if too many wait already, or none is taken any more. Jobs that nobody
    /// wants any more do not count.
    pub(super) fn push(&self, job: Job) -> bool {
        let mut state = self.lock();
        state.waiting.retain(Job::is_wanted);
        if state.is_closed || state.waiting.len() >= self.most + usize::from(!state.is_busy) {
            return false;
        }
        state.waiting.push_back(job);
        self.changed.notify_all();
        true
    }

    /// Waits for the next job that somebody wants. Returns `None` when the queue is closed.
    pub(super) fn next(&self) -> Option<Job> {
        let mut state = self.lock();
        state.is_busy = false;
        loop {
            if state.is_closed {
                state.waiting.clear();
                return None;
            }
            match state.waiting.pop_front() {
                Some(job) if job.is_wanted() => {
                    state.is_busy = true;
                    return Some(job);
                }
                Some(_) => {}
                None => state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// Ends it: no job is taken any more.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_all();
    }

    /// Whether it has ended.
    pub(super) fn is_closed(&self) -> bool {
        self.lock().is_closed
    }

    /// How many jobs wait or are worked on.
    pub(super) fn count(&self) -> usize {
        let state = self.lock();
        state.waiting.iter().filter(|job| job.is_wanted()).count() + usize::from(state.is_busy)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
