//! The actor of one rank: its worker, and the threads on which the worker runs.

use std::panic::{AssertUnwindSafe, catch_unwind};

use actix::{Actor, Context};
use pipewright_stages::Stage;
use pipewright_stages::threads::Threads;

use crate::error::{Error, Result, panic_message};
use crate::worker::Worker;

/// One rank of the pipeline, on threads of its own.
pub(crate) struct StageActor<S: Stage> {
    pub(super) worker: Option<Box<Worker<S>>>,
    /// The thread's helpers. [`Build`] makes them.
    pub(super) threads: Option<Threads>,
}

impl<S: Stage> StageActor<S> {
    /// An actor without a worker. A [`Build`] message makes the worker.
    pub(crate) fn new() -> Self {
        Self {
            worker: None,
            threads: None,
        }
    }

    /// Runs a job without which the worker cannot continue. If it fails, the worker is dropped, which tells
    /// all other ranks to stop.
    pub(super) fn must<T>(&mut self, job: impl FnOnce(&mut Worker<S>) -> Result<T>) -> Result<T> {
        let result = self.ask(job);
        if result.is_err() {
            self.worker = None;
        }
        result
    }

    /// Runs a job after which the worker can continue, even if the job fails.
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
