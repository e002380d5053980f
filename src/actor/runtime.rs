//! The actix system on its own thread. Each rank has one arbiter, which is a thread.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use actix::dev::Request;
use actix::{Actor, Addr, Arbiter, System};
use futures_util::future::{JoinAll, join_all};
use pipewright_stages::Stage;

use super::job::Job;
use super::stage_actor::StageActor;
use super::watch::{KeepWaiting, Watch};
use crate::ended::await_end;
use crate::error::{CallError, Error, LaunchError, Result, panic_message};
use crate::id::WorldRank;
use crate::system;
use crate::worker::Progress;

/// A job that all ranks of this process have been sent, whose answers nobody has asked for yet.
#[allow(missing_debug_implementations, reason = "holds messages to actors")]
pub(crate) struct Asked<S: Stage, T: Send + 'static>(JoinAll<Request<StageActor<S>, Job<S, T>>>);

/// How many files the thread of a rank has open, and some for the others of the process.
const FILES_EACH: usize = 5;
const FILES: usize = 8;

/// The running actors of this process's ranks. Dropping it stops them and waits for their threads to end, but
/// not for one that hangs.
pub(crate) struct Runtime<S: Stage> {
    /// In the order of the actors.
    ranks: Vec<WorldRank>,
    actors: Vec<Addr<StageActor<S>>>,
    /// Each rank's progress.
    progress: Vec<Arc<Progress>>,
    /// Whether a rank has stalled, so that its thread may never end.
    has_stalled: AtomicBool,
    system: System,
    thread: Option<JoinHandle<()>>,
}

impl<S: Stage> Runtime<S> {
    /// Starts one actor for each of these ranks.
    ///
    /// # Errors
    /// When the system cannot start a thread.
    pub(crate) fn start(ranks: Vec<WorldRank>) -> Result<Self> {
        let count = ranks.len();
        let no_threads = |source| Error::from(LaunchError::no_threads(count, source));
        // Without so many, the threads of the ranks would panic.
        system::can_open(FILES + FILES_EACH * count).map_err(no_threads)?;
        let (started, ready) = crossbeam_channel::bounded(1);
        let thread = std::thread::Builder::new()
            .name("pipeline".to_owned())
            .spawn(move || {
                let runner = System::new();
                let arbiters: Vec<Arbiter> =
                    runner.block_on(async { (0..count).map(|_| Arbiter::new()).collect() });
                let handles = arbiters.iter().map(Arbiter::handle).collect::<Vec<_>>();
                started.send((System::current(), handles)).expect("`start` waits for it");
                runner.run().expect("the system's own thread runs it");
                for arbiter in arbiters {
                    arbiter.stop();
                    // A panic was already reported by the thread's actor.
                    let _ = arbiter.join();
                }
            })
            .map_err(no_threads)?;
        let Ok((system, handles)) = ready.recv() else {
            let panic = thread.join().expect_err("it ends before it is ready only by a panic");
            return Err(no_threads(io::Error::other(panic_message(panic.as_ref()))));
        };
        let progress: Vec<Arc<Progress>> = ranks.iter().map(|_| Arc::default()).collect();
        let actors = handles.iter().zip(&progress).map(|(handle, progress)| {
            let progress = Arc::clone(progress);
            StageActor::start_in_arbiter(handle, |_| StageActor::new(progress))
        });
        Ok(Self {
            actors: actors.collect(),
            progress,
            has_stalled: AtomicBool::new(false),
            ranks,
            system,
            thread: Some(thread),
        })
    }

    /// Whether this rank runs here.
    pub(crate) fn has(&self, rank: WorldRank) -> bool {
        self.ranks.contains(&rank)
    }

    /// The index of a rank of this process.
    fn index(&self, rank: WorldRank) -> usize {
        let found = self.ranks.binary_search(&rank);
        found.expect("only this process's own ranks are asked for")
    }

    /// Sends every rank a job. A rank does one job after the other.
    pub(crate) fn send<T>(&self, job: impl FnMut(WorldRank) -> Job<S, T>) -> Asked<S, T>
    where
        T: Send + 'static,
    {
        let jobs = self.ranks.iter().copied().map(job);
        Asked(join_all(self.actors.iter().zip(jobs).map(|(actor, job)| actor.send(job))))
    }

    /// Waits for all answers to a job, in rank order.
    ///
    /// # Errors
    /// When any rank fails: the first cause, and not the errors that follow from it. Also the errors of
    /// [`Watch::wait`].
    pub(crate) fn answers<T>(&self, asked: &mut Asked<S, T>, keep_waiting: KeepWaiting<'_>) -> Result<Vec<T>>
    where
        T: Send + 'static,
    {
        let answers: Vec<Result<T>> = self
            .wait(&mut asked.0, keep_waiting)?
            .into_iter()
            .zip(&self.ranks)
            .map(|(answer, rank)| answer.unwrap_or_else(|_| no_answer(*rank)))
            .collect();
        let (answers, mut failures): (Vec<_>, Vec<_>) = answers.into_iter().partition(Result::is_ok);
        if failures.is_empty() {
            return Ok(answers.into_iter().filter_map(Result::ok).collect());
        }
        let first = failures.iter().position(|failure| failure.as_ref().is_err_and(|error| !error.is_echo()));
        failures.swap_remove(first.unwrap_or(0)).map(|_| Vec::new())
    }

    /// Waits for the answers of ranks.
    fn wait<T>(&self, answers: impl Future<Output = T>, keep_waiting: KeepWaiting<'_>) -> Result<T> {
        let ranks = self.ranks.iter().copied();
        let watch = Watch::new(ranks.zip(self.progress.iter().map(Arc::as_ref)));
        Ok(watch
            .wait(answers, keep_waiting)
            .inspect_err(|_| self.has_stalled.store(true, Ordering::Relaxed))?)
    }

    /// Where to read the progress of one of its ranks.
    pub(crate) fn progress(&self, rank: WorldRank) -> Arc<Progress> {
        Arc::clone(&self.progress[self.index(rank)])
    }

    /// Sends one of its ranks a job and waits for its answer.
    ///
    /// # Errors
    /// Whatever the rank reports. Also the errors of [`Watch::wait`].
    pub(crate) fn ask<T>(&self, rank: WorldRank, job: Job<S, T>, keep_waiting: KeepWaiting<'_>) -> Result<T>
    where
        T: Send + 'static,
    {
        let answer = self.actors[self.index(rank)].send(job);
        self.wait(answer, keep_waiting)?.unwrap_or_else(|_| no_answer(rank))
    }
}

fn no_answer<T>(rank: WorldRank) -> Result<T> {
    Err(CallError::no_answer(rank).into())
}

impl<S: Stage> Runtime<S> {
    /// Stops the actors and waits for their threads to end.
    pub(crate) fn stop(&mut self) {
        self.actors.clear();
        self.system.stop();
        // A stalled rank may never end, and neither may the ranks that wait for it. So their threads are not
        // waited for.
        if let Some(thread) = self.thread.take().filter(|_| !*self.has_stalled.get_mut()) {
            await_end(thread);
        }
    }
}

impl<S: Stage> Drop for Runtime<S> {
    fn drop(&mut self) {
        self.stop();
    }
}

impl<S: Stage> std::fmt::Debug for Runtime<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runtime").field("ranks", &self.actors.len()).finish_non_exhaustive()
    }
}
