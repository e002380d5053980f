//! What a rank is asked to do: the message to its actor.

use std::sync::Arc;

use actix::{Handler, Message};
use core_affinity::CoreId;
use pipewright_stages::Stage;
use pipewright_stages::threads::{self, Threads};

use super::stage_actor::StageActor;
use crate::error::{LaunchError, Result, caught};
use crate::id::Rank;
use crate::worker::{Built, Plan, Restarting, Seat, StepRequest, Trained, Worker};

/// A job for a rank, and its answer. It holds commands, settings and numbers, and never a tensor.
#[allow(missing_debug_implementations, reason = "holds a closure")]
pub(crate) struct Job<S: Stage, T>(Act<S, T>);

enum Act<S: Stage, T> {
    /// A step. A run has many steps, so this job needs no memory.
    Step(StepRequest, fn(&mut StageActor<S>, StepRequest) -> Result<T>),
    Once(Once<S, T>),
}

type Once<S, T> = Box<dyn FnOnce(&mut StageActor<S>) -> Result<T> + Send>;

impl<S: Stage, T: 'static> Message for Job<S, T> {
    type Result = Result<T>;
}

impl<S: Stage, T: 'static> Handler<Job<S, T>> for StageActor<S> {
    type Result = Result<T>;

    fn handle(&mut self, job: Job<S, T>, _: &mut Self::Context) -> Self::Result {
        match job.0 {
            Act::Step(request, run) => run(self, request),
            Act::Once(run) => run(self),
        }
    }
}

impl<S: Stage, T: 'static> Job<S, T> {
    fn once(act: impl FnOnce(&mut StageActor<S>) -> Result<T> + Send + 'static) -> Self {
        Self(Act::Once(Box::new(act)))
    }

    /// A job without which the worker cannot continue. If it fails, all ranks stop.
    pub(crate) fn must(job: impl FnOnce(&mut Worker<S>) -> Result<T> + Send + 'static) -> Self {
        Self::once(|actor| actor.must(job))
    }

    /// As [`Job::must`]. After it the weights are others.
    pub(crate) fn renew(job: impl FnOnce(&mut Worker<S>) -> Result<T> + Send + 'static) -> Self {
        Self::once(|actor| actor.renew(job))
    }

    /// A job after which the worker can continue, even if the job fails.
    pub(crate) fn ask(job: impl FnOnce(&mut Worker<S>) -> Result<T> + Send + 'static) -> Self {
        Self::once(|actor| actor.ask(job))
    }

    /// As [`Job::must`], but the worker can continue after an error that the job answers with.
    pub(crate) fn attempt(job: impl FnOnce(&mut Worker<S>) -> Result<Result<T>> + Send + 'static) -> Self {
        Self::once(|actor| actor.must(job)?)
    }
}

impl<S: Stage> Job<S, Built> {
    /// Makes the worker, on the actor's own thread, which is the first of the rank's threads. `cores`: for
    /// these threads. Empty: any cores.
    pub(crate) fn build(plan: Arc<Plan>, seat: Seat<S>, cores: Vec<CoreId>) -> Self {
        Self::once(|actor| {
            let _at_work = actor.at_work();
            actor.restarting = Restarting::new(plan.restarts);
            let rank = plan.mesh.coordinate(seat.transport.rank()).rank;
            actor.threads = Some(start_threads(rank, plan.threads, cores)?);
            actor.worker = Some(Box::new(caught(|| Worker::build(plan, seat))?));
            if actor.restarting.is_allowed() {
                actor.must(Worker::sum_frozen)?;
            }
            actor.must(Worker::built)
        })
    }
}

impl<S: Stage> Job<S, Trained> {
    /// Runs one training step.
    pub(crate) fn train(request: StepRequest) -> Self {
        Self(Act::Step(request, StageActor::train))
    }
}

impl<S: Stage> Job<S, ()> {
    /// Makes a snapshot that the process keeps too, and gives it to `keep`.
    pub(crate) fn snap(keep: impl FnOnce(Arc<Vec<u8>>) + Send + 'static) -> Self {
        Self::once(|actor| actor.snap().map(keep))
    }

    /// Takes the weights and optimizer state of such a snapshot.
    pub(crate) fn take_back(snapshot: Arc<Vec<u8>>) -> Self {
        Self::once(|actor| actor.take_back(snapshot))
    }
}

/// Makes the current thread the first of the rank's threads.
fn start_threads(rank: Rank, count: usize, cores: Vec<CoreId>) -> Result<Threads> {
    let pin = move |thread: usize| {
        if let Some(core) = cores.get(thread) {
            // Some systems do not let threads be pinned. The thread then runs unpinned.
            core_affinity::set_for_current(*core);
        }
    };
    pin(0);
    threads::start(count, pin).map_err(|source| {
        LaunchError::because(format!("rank {rank}: {source}; lower `threads_per_rank`"), source).into()
    })
}
