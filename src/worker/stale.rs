//! Steps with weights that may be stale: what a rank does as a part of a parameter server.

use std::time::Instant;

use pipewright_stages::Stage;
use pipewright_stages::optimizer::Update;

use super::Worker;
use super::chunk::chunk_of;
use super::execution::Execution;
use super::finish::update_of;
use super::outcome::{Outcome, Settled};
use super::progress::WaitsFor;
use super::reduction::{Reach, slices_of};
use super::served::Served;
use super::server::{Rule, Server};
use crate::error::{Result, caught};
use crate::id::{StageId, WorldRank};

impl<S: Stage> Worker<S> {
    /// Begins a call, or goes on with the one in which weights may be stale: it lasts from one settlement to
    /// the next.
    pub(super) fn begin_step(&mut self, call: crate::fabric::Call, step: u64) -> Result<()> {
        if self.server.is_some() {
            return Ok(());
        }
        self.transport.begin(call)?;
        if self.max_staleness == 0 {
            return Ok(());
        }
        let reach = Reach {
            share: &self.share,
            transport: self.transport.as_mut(),
            blocks: &mut self.blocks,
        };
        let reductions = &self.reductions;
        let served = self.chunks.iter_mut().map(|chunk| {
            let slices = slices_of(reductions, chunk.id).clone();
            Served::new(chunk, slices, &reach)
        });
        let stages = served.collect::<Result<Vec<_>>>()?;
        let own = reach.transport.rank();
        let others = (0..reach.transport.ranks())
            .map(WorldRank)
            .filter(|rank| *rank != own);
        self.server = Some(Server::new(self.max_staleness, step, stages, others.collect()));
        Ok(())
    }

    /// Of how many steps the updates are missing in the weights of the step that begins.
    pub(super) fn count_staleness(&mut self) -> u32 {
        let server = self.server.as_mut();
        server.map_or(0, |server| server.count_staleness(self.share.replica))
    }

    /// Sends a stage's sums of this step to their owners.
    pub(super) fn push_sums(&mut self, stage: StageId) -> Result<()> {
        let since = Instant::now();
        self.with_server(|server, worker| {
            let mut served = server.stages.iter_mut();
            let served = served.find(|served| served.stage == stage);
            let served = served.expect("it has all stages of the rank");
            let (chunks, mut reach) = worker.reach();
            served.push(chunk_of(chunks, stage), &mut reach)
        })?;
        self.meter.reduced(since.elapsed());
        Ok(())
    }

    /// Goes on with the updates of what this rank owns, without waiting. Returns whether it did anything.
    pub(super) fn serve(&mut self) -> Result<bool> {
        self.with_server(|server, worker| {
            let (clip, optimizer) = (worker.clip, std::sync::Arc::clone(&worker.optimizer));
            let micro_batches = worker.share.micro_batches();
            let update = |outcome, step, learning_rate| match outcome {
                Outcome::Updated(totals) => {
                    Some(update_of(&totals, micro_batches, clip, step, learning_rate))
                }
                Outcome::NotFinite(_) => None::<Update>,
            };
            let rule = Rule {
                optimizer: optimizer.as_ref(),
                update: &update,
            };
            server.progress(&mut worker.reach().1, &rule)
        })
    }

    /// A stage's step. The rank's last one ends the rank's step: it waits until no more updates are missing
    /// than may be.
    pub(super) fn end_stale_step(&mut self, run: &mut Execution<'_>) -> Result<()> {
        run.stepped += 1;
        if run.stepped < self.chunks.len() {
            return Ok(());
        }
        let since = Instant::now();
        self.agreement.begin();
        self.tell_scores();
        let needed = self.with_server(|server, worker| {
            server.end_step(worker.agreement.told(), run.asks, run.learning_rate);
            Ok(server.needed())
        })?;
        self.take_weights_of(needed)?;
        let ended = self.with_server(|server, _| Ok(server.report()))?;
        (run.outcome, run.asked) = (Some(ended.outcome), ended.asks);
        self.meter.reduced(since.elapsed());
        Ok(())
    }

    /// Waits until all steps so far have become updates, here and in all replicas. Then the stages have the
    /// newest weights and all of the optimizer's state, and nothing is stale.
    ///
    /// # Errors
    /// [`crate::Error::PeerGone`], and the errors of updates: at the rank's last action, as if all were a
    /// part of it.
    pub(crate) fn settle(&mut self) -> Result<Settled> {
        if self.server.is_none() {
            return Ok(Settled::default());
        }
        let (replica, rank) = (self.shown_replica(), self.rank);
        caught(|| self.come_together()).map_err(|error| {
            let last = self.schedule.actions(rank).iter().enumerate().next_back();
            let (index, action) = last.expect("lowering ends each rank with a step");
            error.at_action(replica, rank, index, action)
        })
    }

    fn come_together(&mut self) -> Result<Settled> {
        let all = self.with_server(|server, _| Ok(server.all()))?;
        self.take_weights_of(all)?;
        let server = self.server.take().expect("it was there");
        let settled = server.settled();
        for served in server.stages {
            served
                .owned
                .give_back(&mut chunk_of(&mut self.chunks, served.stage).stage)?;
        }
        Ok(settled)
    }

    /// Waits for weights with at least `version` updates, and puts the newest ones into the stages.
    fn take_weights_of(&mut self, version: u64) -> Result<()> {
        let own = self.share.replica;
        loop {
            let moved = self.serve()?;
            if self.server.as_ref().is_none_or(|server| server.has(own, version)) {
                break;
            }
            if !moved {
                let transport = &mut self.transport;
                self.meter.wait(WaitsFor::All, || transport.listen())?;
            }
        }
        // A stage that sets its gradients to zero drops what it has computed from old weights.
        for index in 0..self.chunks.len() {
            self.discard_gradients(self.chunks[index].id)?;
        }
        self.with_server(|server, worker| {
            let (chunks, mut reach) = worker.reach();
            server.install(chunks, &mut reach)
        })
    }

    /// Does something with the server and the rest of the worker.
    fn with_server<T>(&mut self, act: impl FnOnce(&mut Server, &mut Self) -> Result<T>) -> Result<T> {
        let mut server = self.server.take().expect("weights may be stale");
        let result = act(&mut server, self);
        self.server = Some(server);
        result
    }

    /// The stages, and what reaches other ranks.
    fn reach(&mut self) -> (&mut [super::chunk::Chunk<S>], Reach<'_, S::Wire>) {
        let reach = Reach {
            share: &self.share,
            transport: self.transport.as_mut(),
            blocks: &mut self.blocks,
        };
        (&mut self.chunks, reach)
    }
}
