//! All ranks of a run: this process's actors, and the ranks of other processes.

use std::fmt::Arguments;
use std::sync::Arc;
use std::time::Duration;

use actix::dev::ToEnvelope;
use actix::{Actor, Handler, Message};
use pipewright_stages::Stage;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::runtime::Runtime;
use super::stage_actor::StageActor;
use crate::error::{CallError, Result};
use crate::fabric::{Call, Peers};
use crate::id::{Rank, WorldRank};
use crate::interrupt::Interrupt;
use crate::mesh::{Coordinate, Mesh};
use crate::worker::Progress;

/// All ranks. Every process makes the same requests here, and every process receives all answers.
pub(crate) struct Ranks<S: Stage> {
    runtime: Runtime<S>,
    peers: Peers,
    mesh: Mesh,
}

impl<S: Stage> Ranks<S> {
    /// Starts this process's ranks.
    ///
    /// # Errors
    /// When the system cannot start a thread.
    pub(crate) fn start(mesh: Mesh, peers: Peers, stall_limit: Option<Duration>) -> Result<Self> {
        let own = mesh.ranks_of(peers.process()).collect();
        match Runtime::start(own, stall_limit) {
            Ok(runtime) => Ok(Self { runtime, peers, mesh }),
            Err(error) => {
                peers.fail(&error);
                Err(error)
            }
        }
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

    /// The other processes.
    pub(crate) fn peers(&self) -> &Peers {
        &self.peers
    }

    /// Sends every rank a message and waits for all answers, in rank order. Each process sends to its own
    /// ranks and shares their answers.
    ///
    /// # Errors
    /// When any rank fails: the first cause, and not the errors that follow from it.
    pub(crate) fn ask_all<M, T>(&self, what: &str, message: impl FnMut(WorldRank) -> M) -> Result<Vec<T>>
    where
        M: Message<Result = Result<T>> + Send + 'static,
        T: Serialize + DeserializeOwned + Send + 'static,
        StageActor<S>: Handler<M>,
        <StageActor<S> as Actor>::Context: ToEnvelope<StageActor<S>, M>,
    {
        let keep_waiting = |progress| self.peers.keep_waiting(progress);
        self.spread_of(what, self.runtime.ask_all(message, &keep_waiting))
    }

    /// The answers of all processes' ranks, from those of this one.
    fn spread_of<T: Serialize + DeserializeOwned>(&self, what: &str, own: Result<Vec<T>>) -> Result<Vec<T>> {
        if let Err(error) = &own
            && error.is_left_early()
        {
            // Ranks of other processes wait for ranks of this one. So tell them of a failure before waiting
            // for them.
            self.peers.fail(error);
            return own;
        }
        self.spread(what, own)
    }

    /// Sends this process's ranks a message and waits for their answers, in rank order, but not for other
    /// processes, unless a rank fails.
    ///
    /// # Errors
    /// As for [`Ranks::ask_all`].
    pub(crate) fn ask_own<M, T>(&self, what: &str, message: impl FnMut(WorldRank) -> M) -> Result<Vec<T>>
    where
        M: Message<Result = Result<T>> + Send + 'static,
        T: Serialize + DeserializeOwned + Send + 'static,
        StageActor<S>: Handler<M>,
        <StageActor<S> as Actor>::Context: ToEnvelope<StageActor<S>, M>,
    {
        let keep_waiting = |progress| self.peers.keep_waiting(progress);
        match self.runtime.ask_all(message, &keep_waiting) {
            Ok(own) => Ok(own),
            failed => self.spread_of(what, failed),
        }
    }

    /// Sends one rank a message and waits for its answer. Every process receives the answer.
    ///
    /// # Errors
    /// Whatever the rank reports.
    pub(crate) fn ask<M, T>(&self, what: &str, rank: Rank, message: M) -> Result<T>
    where
        M: Message<Result = Result<T>> + Send + 'static,
        T: Serialize + DeserializeOwned + Send + 'static,
        StageActor<S>: Handler<M>,
        <StageActor<S> as Actor>::Context: ToEnvelope<StageActor<S>, M>,
    {
        let first = self.first(rank);
        let own = if self.runtime.has(first) {
            self.runtime.ask(first, message).map(|answer| vec![answer])
        } else {
            Ok(Vec::new())
        };
        let mut all = self.spread(what, own)?;
        all.pop().ok_or_else(|| CallError::NoSuchRank { rank }.into())
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
        Ok(self
            .peers
            .share_values(what, own)?
            .into_iter()
            .flatten()
            .collect())
    }
}

impl<S: Stage> std::fmt::Debug for Ranks<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ranks")
            .field("runtime", &self.runtime)
            .field("peers", &self.peers)
            .finish()
    }
}
