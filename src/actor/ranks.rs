//! All ranks of a run: this process's actors, and the ranks of other processes.

use std::fmt::Arguments;
use std::sync::Arc;

use pipewright_stages::Stage;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::board::Board;
use super::caller::CallerProgress;
use super::job::Job;
use super::runtime::{Asked, Runtime};
use super::typical_wait::TypicalWait;
use super::watcher::{OnStall, StallRules, Watcher};
use crate::error::{CallError, LaunchError, Result};
use crate::fabric::{Call, Peers};
use crate::id::{Rank, WorldRank};
use crate::interrupt::Interrupt;
use crate::mesh::{Coordinate, Mesh};
use crate::situation::Part;
use crate::worker::Progress;

/// All ranks. Every process makes the same requests here, and every process receives all answers.
pub(crate) struct Ranks<S: Stage> {
    /// Ends before the peers, which it asks.
    watcher: Watcher,
    calls: Arc<CallerProgress>,
    runtime: Runtime<S>,
    peers: Peers,
    mesh: Mesh,
}

impl<S: Stage> Ranks<S> {
    /// Starts this process's ranks.
    ///
    /// # Errors
    /// When the system cannot start a thread.
    pub(crate) fn start(mesh: Mesh, peers: Peers, rules: StallRules) -> Result<Self> {
        let own: Vec<WorldRank> = mesh.ranks_of(peers.process()).collect();
        let calls = Arc::<CallerProgress>::default();
        let started = Runtime::start(own.clone()).and_then(|runtime| {
            let progress = own.iter().map(|rank| (*rank, runtime.progress(*rank)));
            let usual = TypicalWait::new(rules.warning);
            let board = Board::new(Arc::clone(&calls), usual, progress);
            let watcher = Watcher::start(board, peers.others(), mesh.clone(), rules);
            let watcher = watcher.map_err(|source| LaunchError::no_threads(own.len(), source))?;
            Ok((runtime, watcher))
        });
        match started {
            Ok((runtime, watcher)) => Ok(Self { watcher, calls, runtime, peers, mesh }),
            Err(error) => {
                peers.fail(&error);
                Err(error)
            }
        }
    }

    /// From now on this is told of stalls, on a thread of its own.
    pub(crate) fn on_stall(&self, listener: OnStall) {
        self.watcher.add(listener);
    }

    /// From now on, data comes from here: for messages.
    pub(crate) fn take_data_from(&self, source: String) {
        self.calls.take_data_from(source);
    }

    /// Leaves the other processes, to join the run again: a process was lost. The ranks stop.
    pub(crate) fn leave(&mut self, lost: u32) {
        self.watcher.stop();
        self.peers.leave(lost);
        self.runtime.stop();
    }

    /// Does something with the other processes, on this thread.
    ///
    /// # Errors
    /// Whatever it returns.
    pub(crate) fn together<T>(&self, what: &str, act: impl FnOnce(&Peers) -> Result<T>) -> Result<T> {
        let act = || act(&self.peers);
        self.told(self.calls.during(what, Part::Processes, act))
    }

    /// Does something that is a part of a call, on this thread, and may take its time.
    pub(crate) fn during<T>(&self, what: &str, act: impl FnOnce() -> T) -> T {
        self.calls.during(what, Part::Own, act)
    }

    /// From now on this interrupt may end a call early.
    pub(crate) fn heed(&mut self, interrupt: Interrupt) {
        self.peers.heed(interrupt);
    }

    /// Announces a call, with its arguments, before its ranks begin it.
    ///
    /// # Errors
    /// When another process makes a different call.
    pub(crate) fn announce(&self, call: Arguments<'_>) -> Result<Call> {
        self.peers.announce(call)
    }

    /// Where to read the progress of one of this process's ranks.
    pub(crate) fn progress(&self, rank: WorldRank) -> Arc<Progress> {
        self.runtime.progress(rank)
    }

    /// Where every rank is.
    pub(crate) fn mesh(&self) -> &Mesh {
        &self.mesh
    }

    /// From now on the ranks are in another shape.
    pub(crate) fn reshape(&mut self, mesh: &Mesh) {
        self.mesh = mesh.clone();
    }

    /// The other processes.
    pub(crate) fn peers(&self) -> &Peers {
        &self.peers
    }

    /// Sends every rank a job and waits for all answers, in rank order. Each process sends to its own
    /// ranks and shares their answers.
    ///
    /// # Errors
    /// When any rank fails: the first cause, and not the errors that follow from it.
    pub(crate) fn ask_all<T>(&self, what: &str, job: impl FnMut(WorldRank) -> Job<S, T>) -> Result<Vec<T>>
    where
        T: Serialize + DeserializeOwned + Send + 'static,
    {
        self.spread_of(what, self.own_answers(what, job))
    }

    /// The answers of this process's ranks.
    fn own_answers<T>(&self, what: &str, job: impl FnMut(WorldRank) -> Job<S, T>) -> Result<Vec<T>>
    where
        T: Send + 'static,
    {
        self.wait_for(what, &mut self.runtime.send(job))
    }

    /// Waits for the answers of this process's ranks.
    fn wait_for<T>(&self, what: &str, asked: &mut Asked<S, T>) -> Result<Vec<T>>
    where
        T: Send + 'static,
    {
        let keep_waiting = |progress| self.peers.keep_waiting(progress);
        let wait = || self.runtime.answers(asked, &keep_waiting);
        self.told(self.calls.during(what, Part::Ranks, wait))
    }

    /// Sends every rank of this process a job, for [`Ranks::answers`].
    pub(crate) fn send<T>(&self, job: impl FnMut(WorldRank) -> Job<S, T>) -> Asked<S, T>
    where
        T: Send + 'static,
    {
        self.runtime.send(job)
    }

    /// Waits for the answers to a job, in rank order: of all processes. A rank that has begun a `later` job
    /// may fail in it. The others then only know that it has stopped, and the cause is in the answers to that
    /// job, maybe those of a process in which all ranks have done the first job. So after a failure all
    /// processes tell each other what came of the later job.
    ///
    /// # Errors
    /// As for [`Ranks::ask_all`].
    pub(crate) fn answers<T>(
        &self,
        what: &str,
        mut asked: Asked<S, T>,
        later: Option<&mut Asked<S, T>>,
    ) -> Result<Vec<T>>
    where
        T: Serialize + DeserializeOwned + Send + 'static,
    {
        let own = self.wait_for(what, &mut asked);
        let (first, later) = match (self.spread_of(what, own), later) {
            (Err(first), Some(later)) => (first, later),
            (answers, _) => return answers,
        };
        if first.is_left_early() || first.lost_process().is_some() {
            return Err(first);
        }
        let ended = self.wait_for(what, later);
        let own = if first.is_echo() { ended } else { Err(first) };
        self.spread_of(what, own)
    }

    /// A result. If the call was left early, nothing more is told of stalls, and ranks of other processes are
    /// told: they may wait for ranks of this one.
    fn told<T>(&self, result: Result<T>) -> Result<T> {
        result.inspect_err(|error| {
            if error.is_left_early() {
                self.watcher.end();
                self.peers.fail(error);
            }
        })
    }

    /// The answers of the ranks of all processes, from the answers of this process's ranks.
    fn spread_of<T: Serialize + DeserializeOwned>(&self, what: &str, own: Result<Vec<T>>) -> Result<Vec<T>> {
        match own {
            Err(error) if error.is_left_early() => Err(error),
            own => self.spread(what, own),
        }
    }

    /// Sends this process's ranks a job and waits for their answers, in rank order, but not for other
    /// processes, unless a rank fails.
    ///
    /// # Errors
    /// As for [`Ranks::ask_all`].
    pub(crate) fn ask_own<T>(&self, what: &str, job: impl FnMut(WorldRank) -> Job<S, T>) -> Result<Vec<T>>
    where
        T: Serialize + DeserializeOwned + Send + 'static,
    {
        match self.own_answers(what, job) {
            Ok(own) => Ok(own),
            failed => self.spread_of(what, failed),
        }
    }

    /// Sends one rank a job and waits for its answer. Every process receives the answer.
    ///
    /// # Errors
    /// Whatever the rank reports.
    pub(crate) fn ask<T>(&self, what: &str, rank: Rank, job: Job<S, T>) -> Result<T>
    where
        T: Serialize + DeserializeOwned + Send + 'static,
    {
        let first = self.first(rank);
        let own = if self.runtime.has(first) {
            let keep_waiting = |progress| self.peers.keep_waiting(progress);
            let ask = || self.runtime.ask(first, job, &keep_waiting);
            let answer = self.told(self.calls.during(what, Part::Ranks, ask));
            answer.map(|answer| vec![answer])
        } else {
            Ok(Vec::new())
        };
        let mut all = self.spread_of(what, own)?;
        all.pop().ok_or_else(|| CallError::new(format!("no process has rank {rank}")).into())
    }

    /// The rank that answers for a rank of the pipeline.
    pub(crate) fn first(&self, rank: Rank) -> WorldRank {
        self.mesh.world_rank(Coordinate::of_first(rank))
    }

    /// The values of all processes, in process order.
    ///
    /// # Errors
    /// If any process has an error: the first cause, on every process.
    pub(crate) fn spread<T: Serialize + DeserializeOwned>(
        &self,
        what: &str,
        own: Result<Vec<T>>,
    ) -> Result<Vec<T>> {
        if self.peers.processes() == 1 {
            return own;
        }
        let all = self.together(what, |peers| peers.share_values(what, own))?;
        Ok(all.into_iter().flatten().collect())
    }
}

impl<S: Stage> std::fmt::Debug for Ranks<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ranks").field("runtime", &self.runtime).field("peers", &self.peers).finish()
    }
}
