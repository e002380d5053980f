//! A rank that fails in a step is built again, and repeats what it has lost. The other ranks only wait for
//! it.
//!
//! The rank does this itself, inside of the message that failed. A supervisor would start another actor, but
//! that message would be lost, and the end of the rank with it.

use std::sync::Arc;
use std::thread;
use std::time::Instant;

use pipewright_stages::Stage;

use super::restart::{Restart, Restarts, pause_after};
use crate::error::{RestartError, Result, caught};
use crate::worker::{StepRequest, Trained, Worker};

/// What a rank needs to be built again: its last snapshot, and the steps since then.
#[derive(Debug, Default)]
pub(crate) struct Restarting {
    restarts: Restarts,
    /// The snapshot of the weights before the first of `steps`. `None`: they have been replaced since.
    snapshot: Option<Arc<Vec<u8>>>,
    /// Whether the processes keep the snapshot too. Then they say when the next one is due.
    is_shared: bool,
    /// The steps since the snapshot.
    steps: Vec<StepRequest>,
}

impl Restarting {
    pub(crate) fn new(restarts: Restarts) -> Self {
        Self { restarts, ..Self::default() }
    }

    /// All weights have been replaced: a restart would begin with the next step.
    pub(crate) fn renew<S: Stage>(&mut self, worker: &mut Worker<S>) {
        self.snapshot = None;
        self.begin_anew(worker);
    }

    fn begin_anew<S: Stage>(&mut self, worker: &mut Worker<S>) {
        worker.transport.forget();
        self.steps.clear();
    }

    /// Makes a snapshot that the processes keep too.
    pub(crate) fn share<S: Stage>(&mut self, worker: &mut Worker<S>) -> Result<Arc<Vec<u8>>> {
        let snapshot = self.snap(worker)?;
        self.is_shared = true;
        Ok(snapshot)
    }

    /// The rank has the weights of this snapshot, which the processes keep too.
    pub(crate) fn begin_with<S: Stage>(&mut self, worker: &mut Worker<S>, snapshot: Arc<Vec<u8>>) {
        self.begin_anew(worker);
        self.snapshot = Some(snapshot);
        self.is_shared = true;
    }

    /// Whether ranks are built again at all.
    pub(crate) fn is_allowed(&self) -> bool {
        self.restarts.most > 0
    }

    /// Runs a training step. If the rank fails in it, it is built again, as often as it may be.
    pub(crate) fn train<S: Stage>(
        &mut self,
        worker: &mut Worker<S>,
        request: StepRequest,
    ) -> Result<Trained> {
        caught(|| self.prepare(worker))?;
        self.steps.push(request);
        worker.transport.keep(request.call);
        let mut result = caught(|| worker.train(request));
        let mut restarts: Vec<Restart> = Vec::new();
        loop {
            let error = match result {
                Ok(trained) => return Ok(Trained { restarts, ..trained }),
                Err(error) if !error.may_pass() => return Err(error),
                Err(error) => error,
            };
            if restarts.len() == self.restarts.most as usize {
                return Err(RestartError::KeepsFailing {
                    restarts: self.restarts.most,
                    source: Box::new(error),
                }
                .into());
            }
            let since = Instant::now();
            thread::sleep(pause_after(restarts.len() as u32));
            result = caught(|| self.repeat(worker));
            restarts.push(Restart {
                rank: worker.transport.rank(),
                why: error.to_string(),
                repeated: self.steps.len() as u32,
                seconds: since.elapsed().as_secs_f64(),
            });
        }
    }

    /// A snapshot is made before a step, if one is due: after `snapshot_every` steps, or earlier, when what
    /// came since the last one takes as much memory as a snapshot. Most ranks do it while they would wait for
    /// the first micro-batch.
    fn prepare<S: Stage>(&mut self, worker: &mut Worker<S>) -> Result<()> {
        let is_near = self.is_shared || self.steps.len() < self.restarts.snapshot_every as usize;
        match &self.snapshot {
            Some(snapshot) if is_near && worker.transport.kept() < snapshot.len() as u64 => Ok(()),
            _ => self.snap(worker).map(drop),
        }
    }

    /// Makes a snapshot, with which a restart begins from now on.
    fn snap<S: Stage>(&mut self, worker: &mut Worker<S>) -> Result<Arc<Vec<u8>>> {
        self.begin_anew(worker);
        self.is_shared = false;
        let last = self.snapshot.take().and_then(Arc::into_inner);
        let mut snapshot = last.unwrap_or_default();
        worker.copy_to(&mut snapshot)?;
        Ok(Arc::clone(self.snapshot.insert(Arc::new(snapshot))))
    }

    /// Builds the stages again, and repeats the steps since the snapshot, up to the one that failed.
    fn repeat<S: Stage>(&self, worker: &mut Worker<S>) -> Result<Trained> {
        let snapshot = self.snapshot.as_ref().expect("it is made before each step");
        let data = Arc::clone(&worker.plan.data);
        worker.build_again()?;
        worker.restore(snapshot)?;
        worker.follow_leaders(|_| true)?;
        let (failed, done) = self.steps.split_last().expect("a step has failed");
        for &request in done {
            let request = StepRequest { trace_from: None, ..request };
            worker.run_step(request, Some(&*data), None)?;
        }
        worker.run_step(*failed, Some(&*data), None)
    }
}
