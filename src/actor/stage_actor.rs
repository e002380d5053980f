//! The actor of one rank: its worker, and the threads on which the worker runs.

use std::sync::Arc;

use actix::{Actor, Context};
use pipewright_stages::Stage;
use pipewright_stages::threads::Threads;

use crate::error::{Error, Result, caught};
use crate::worker::{Progress, Restarting, StepRequest, Trained, Worker};

/// One rank of the pipeline, on threads of its own.
pub(crate) struct StageActor<S: Stage> {
    pub(super) worker: Option<Box<Worker<S>>>,
    /// The thread's helpers. [`Job::build`](super::job::Job::build) makes them.
    pub(super) threads: Option<Threads>,
    /// Where others read what the rank does.
    progress: Arc<Progress>,
    /// What the rank needs to be built again.
    pub(super) restarting: Restarting,
}

impl<S: Stage> StageActor<S> {
    /// An actor without a worker. [`Job::build`](super::job::Job::build) makes the worker.
    pub(crate) fn new(progress: Arc<Progress>) -> Self {
        Self { worker: None, threads: None, progress, restarting: Restarting::default() }
    }

    /// Runs a job without which the worker cannot continue. If it fails, the worker is dropped, which tells
    /// all other ranks to stop.
    pub(super) fn must<T>(&mut self, job: impl FnOnce(&mut Worker<S>) -> Result<T>) -> Result<T> {
        let _at_work = self.at_work();
        let result = self.run(job);
        self.end(result.is_ok());
        result
    }

    /// Runs a training step. If the rank fails in it, it is built again, as often as it may be.
    pub(super) fn train(&mut self, request: StepRequest) -> Result<Trained> {
        if !self.restarting.is_allowed() {
            return self.must(|worker| worker.train(request));
        }
        let _at_work = self.at_work();
        let worker = self.worker.as_mut().ok_or(Error::Stopped { cause: None })?;
        let result = self.restarting.train(worker, request);
        self.end(result.is_ok());
        result
    }

    /// Runs a job as [`StageActor::must`] does, after which the weights are others.
    pub(super) fn renew<T>(&mut self, job: impl FnOnce(&mut Worker<S>) -> Result<T>) -> Result<T> {
        let result = self.must(|worker| {
            let done = job(worker)?;
            worker.compare_frozen()?;
            Ok(done)
        });
        if let Some(worker) = &mut self.worker {
            self.restarting.renew(worker);
        }
        result
    }

    /// Makes a snapshot that this process keeps too.
    pub(super) fn snap(&mut self) -> Result<Arc<Vec<u8>>> {
        let _at_work = self.at_work();
        let worker = self.worker.as_mut().ok_or(Error::Stopped { cause: None })?;
        let snapshot = caught(|| self.restarting.share(worker));
        self.end(true);
        snapshot
    }

    /// Takes the weights and optimizer state of such a snapshot.
    pub(super) fn take_back(&mut self, snapshot: Arc<Vec<u8>>) -> Result<()> {
        self.must(|worker| worker.restore(&snapshot))?;
        if let Some(worker) = &mut self.worker {
            self.restarting.begin_with(worker, snapshot);
        }
        Ok(())
    }

    /// Runs a job after which the worker can continue, even if the job fails.
    pub(super) fn ask<T>(&mut self, job: impl FnOnce(&mut Worker<S>) -> Result<T>) -> Result<T> {
        let _at_work = self.at_work();
        let result = self.run(job);
        self.end(true);
        result
    }

    /// The rank has done its part of a call. If it cannot continue, its worker is dropped.
    fn end(&mut self, continues: bool) {
        match &mut self.worker {
            Some(worker) if continues => worker.end_call(),
            worker => *worker = None,
        }
    }

    fn run<T>(&mut self, job: impl FnOnce(&mut Worker<S>) -> Result<T>) -> Result<T> {
        let worker = self.worker.as_mut().ok_or(Error::Stopped { cause: None })?;
        caught(|| job(worker))
    }

    /// The rank is in a call until the result is dropped.
    pub(super) fn at_work(&self) -> AtWork {
        self.progress.set_at_work(true);
        AtWork(Arc::clone(&self.progress))
    }
}

/// A rank is in a call until this is dropped.
pub(super) struct AtWork(Arc<Progress>);

impl Drop for AtWork {
    fn drop(&mut self) {
        self.0.set_at_work(false);
    }
}

impl<S: Stage> Actor for StageActor<S> {
    type Context = Context<Self>;
}

impl<S: Stage> std::fmt::Debug for StageActor<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StageActor").field("running", &self.worker.is_some()).finish()
    }
}
