//! All ranks of a run: the actors of this process, and through the other processes theirs.

use std::fmt::Arguments;
use std::sync::Arc;
use std::time::Duration;

use actix::dev::ToEnvelope;
use actix::{Actor, Handler, Message};
use pipewright_stages::Stage;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Runtime, StageActor};
use crate::error::{CallError, Error, Result};
use crate::fabric::{Call, Peers};
use crate::id::{Rank, WorldRank};
use crate::mesh::{Coordinate, Mesh};
use crate::worker::Progress;

/// All ranks. What is asked of them here is asked in every process, and every process has the answers.
pub(crate) struct Ranks<S: Stage> {
    runtime: Runtime<S>,
    peers: Peers,
    mesh: Mesh,
}

impl<S: Stage> Ranks<S> {
    /// Starts this process's ranks.
    ///
    /// # Errors
    /// When the system gives no thread.
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

    /// Announces a call, with its arguments, before its ranks begin it.
    ///
    /// # Errors
    /// When another process makes another call.
    pub(crate) fn announce(&self, call: Arguments<'_>) -> Result<Call> {
        self.peers.announce(call)
    }

    /// Where a rank of this process says what it does.
    pub(crate) fn progress(&self, rank: WorldRank) -> Arc<Progress> {
        self.runtime.progress(rank)
    }

    /// The other processes.
    pub(crate) fn peers(&self) -> &Peers {
        &self.peers
    }

    /// Sends every rank a message, those of other processes through these, and waits for all answers, in the
    /// order of world ranks.
    ///
    /// # Errors
    /// The first cause when any rank fails, not the echoes of the others.
    pub(crate) fn ask_all<M, T>(&self, what: &str, message: impl FnMut(WorldRank) -> M) -> Result<Vec<T>>
    where
        M: Message<Result = Result<T>> + Send + 'static,
        T: Serialize + DeserializeOwned + Send + 'static,
        StageActor<S>: Handler<M>,
        <StageActor<S> as Actor>::Context: ToEnvelope<StageActor<S>, M>,
    {
        let own = self.runtime.ask_all(message);
        if let Err(error @ Error::Call(CallError::Stalled { .. })) = own {
            // Ranks of other processes wait for the one that has stalled. So they are told before they are heard.
            self.peers.fail(&error);
            return Err(error);
        }
        self.spread(what, own)
    }

    /// Sends a message to the rank at a place in the pipeline, that of the first replica and shard, and waits
    /// for its answer, which every process gets.
    ///
    /// # Errors
    /// What the rank reports.
    pub(crate) fn ask<M, T>(&self, what: &str, rank: Rank, message: M) -> Result<T>
    where
        M: Message<Result = Result<T>> + Send + 'static,
        T: Serialize + DeserializeOwned + Send + 'static,
        StageActor<S>: Handler<M>,
        <StageActor<S> as Actor>::Context: ToEnvelope<StageActor<S>, M>,
    {
        let first = self.mesh.world_rank(Coordinate::of_first(rank));
        let own = if self.runtime.has(first) {
            self.runtime.ask(first, message).map(|answer| vec![answer])
        } else {
            Ok(Vec::new())
        };
        let mut all = self.spread(what, own)?;
        all.pop()
            .ok_or_else(|| Error::Stopped(format!(": no process has rank {rank}")))
    }

    /// Every process's values, in process order.
    ///
    /// # Errors
    /// On every process the first cause, when any brings an error.
    pub(crate) fn spread<T: Serialize + DeserializeOwned>(
        &self,
        what: &str,
        own: Result<Vec<T>>,
    ) -> Result<Vec<T>> {
        if self.peers.processes() == 1 {
            return own;
        }
        let own = own.and_then(|own| postcard::to_stdvec(&own).map_err(|error| unreadable(what, error)));
        let mut all = Vec::new();
        for block in self.peers.share(what, own)? {
            let values: Vec<T> = postcard::from_bytes(&block).map_err(|error| unreadable(what, error))?;
            all.extend(values);
        }
        Ok(all)
    }
}

/// Processes run one build of the program, so what one has written another can read.
fn unreadable(what: &str, error: postcard::Error) -> Error {
    Error::Stopped(format!(": a process's part in {what} cannot be read: {error}"))
}

impl<S: Stage> std::fmt::Debug for Ranks<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ranks")
            .field("runtime", &self.runtime)
            .field("peers", &self.peers)
            .finish()
    }
}
