//! The actor of one rank: its threads, and the worker that they are for.

use std::panic::{AssertUnwindSafe, catch_unwind};

use actix::{Actor, Context};
use pipewright_stages::Stage;
use pipewright_stages::threads::Threads;

use crate::error::{Error, Result, panic_message};
use crate::worker::Worker;

/// One rank of the pipeline, on threads of its own.
pub(crate) struct StageActor<S: Stage> {
    pub(super) worker: Option<Box<Worker<S>>>,
    /// The thread's helpers, from [`Build`] on.
    pub(super) threads: Option<Threads>,
}

impl<S: Stage> StageActor<S> {
    /// An actor whose worker a [`Build`] message will make.
    pub(crate) fn new() -> Self {
        Self {
            worker: None,
            threads: None,
        }
    }

    /// Lets the worker do a job after which it cannot go on if the job fails: dropping it tells all other
    /// ranks to stop.
    pub(super) fn must<T>(&mut self, job: impl FnOnce(&mut Worker<S>) -> Result<T>) -> Result<T> {
        let result = self.ask(job);
        if result.is_err() {
            self.worker = None;
        }
        result
    }

    /// Lets the worker do a job after which it can go on even if the job fails.
    pub(super) fn ask<T>(&mut self, job: impl FnOnce(&mut Worker<S>) -> Result<T>) -> Result<T> {
        let worker = self.worker.as_mut().ok_or(Error::Stopped { cause: None })?;
        caught(|| job(worker))
    }
}

/// A job's result; a panic becomes an error.
pub(super) fn caught<T>(job: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(job))
        .unwrap_or_else(|panic| Err(Error::Panicked(panic_message(panic.as_ref()))))
}

impl<S: Stage> Default for StageActor<S> {
    fn default() -> Self {
        Self::new()
    }
}

impl<S: Stage> Actor for StageActor<S> {
    type Context = Context<Self>;
}

impl<S: Stage> std::fmt::Debug for StageActor<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StageActor")
            .field("running", &self.worker.is_some())
            .finish()
    }
}
