//! What a rank does together with the ranks that hold the same stages in other replicas.

use std::time::Instant;

use pipewright_stages::{Device, Stage};

use super::Worker;
use super::chunk::chunk_of;
use super::execution::Execution;
use super::parameters::Site;
use super::strategy::{BUCKET, GpuSums, HostSums, Lending, ReplicaAccess, Server, Settled, Slices, Strategy};
use crate::error::{Result, caught};
use crate::fabric::{Call, Tag};
use crate::id::{StageId, WorldRank};

impl<S: Stage> Worker<S> {
    /// Says which replica adds up which gradients and, with a sharded optimizer, updates which weights. The
    /// copies of a tied parameter are divided alike. Then chooses how replicas come to the same weights.
    pub(super) fn join_replicas(&mut self) {
        let (own, replicas) = (self.share.replica, self.share.replicas());
        let on_gpus = self.can_stay_on_gpus();
        let mut is_tied: Vec<Vec<bool>> = Vec::new();
        for chunk in &mut self.chunks {
            let first = |index| {
                let is_here = |site: &Site| (site.stage, site.index) == (chunk.id, index);
                let tie = self.ties.iter().find(|tie| tie.sites.iter().any(is_here));
                tie.map(|tie| tie.sites[0].index)
            };
            let mut parameters = Vec::new();
            chunk.stage.visit_gradients(&mut |parameter| {
                parameters.push((parameter.pieces(), first(parameters.len())))
            });
            is_tied.push(parameters.iter().map(|(_, first)| first.is_some()).collect());
            chunk.slices = Slices::new(parameters.into_iter(), replicas);
            if on_gpus {
                chunk.slices = std::mem::take(&mut chunk.slices).in_buckets_of(BUCKET);
            }
            let mut index = 0;
            chunk.stage.visit_gradients(&mut |parameter| {
                if self.plan.is_sharded() {
                    parameter.own(chunk.slices.owned(index, own));
                }
                index += 1;
            });
        }
        self.lending.join(&mut self.chunks, &is_tied);
        self.strategy = match self.plan.max_staleness() {
            _ if replicas == 1 => Strategy::Alone,
            1.. => Strategy::Server(None),
            0 if on_gpus => Strategy::Gpus(GpuSums::new(&self.plan, &self.share, &self.chunks)),
            0 => Strategy::Host(HostSums::new(&self.plan, &self.share, &self.chunks)),
        };
    }

    /// Whether sums over this rank's replicas can stay on GPUs: all of the group say the same.
    fn can_stay_on_gpus(&self) -> bool {
        let own = self.share.replica;
        (0..self.share.replicas()).all(|replica| {
            let rank = self.share.rank(replica);
            let is_on_gpu = self.plan.mesh.place(rank).device != Device::Cpu;
            is_on_gpu && (replica == own || self.transport.is_direct(rank))
        })
    }

    /// How the replicas come to the same weights, and what that needs of the rank.
    pub(super) fn strategy_and_access(&mut self) -> (&mut Strategy, ReplicaAccess<'_, S>) {
        let access = ReplicaAccess {
            chunks: &mut self.chunks,
            plan: &self.plan,
            share: &self.share,
            transport: self.transport.as_mut(),
            blocks: &mut self.blocks,
            lending: &mut self.lending,
            agreement: &mut self.agreement,
            together: &mut self.together,
            meter: &mut self.meter,
        };
        (&mut self.strategy, access)
    }

    /// Begins a call, or goes on with the one in which weights may be stale: it lasts from one settlement to
    /// the next.
    pub(super) fn begin_step(&mut self, call: Call, step: u64) -> Result<()> {
        if self.strategy.is_serving() {
            return Ok(());
        }
        self.transport.begin(call)?;
        if let (Strategy::Server(server), mut access) = self.strategy_and_access() {
            *server = Some(Box::new(Server::new(step, &mut access)?));
        }
        Ok(())
    }

    /// The gradients of a stage are complete. Their sum over the replicas begins. With differential privacy
    /// it begins later, when they are [clipped](Worker::clip).
    pub(super) fn reduce(&mut self, stage: StageId) -> Result<()> {
        match self.plan.privacy {
            Some(_) => Ok(()),
            None => self.start_reduction(stage),
        }
    }

    /// Begins the sum of a stage's gradients over the replicas.
    pub(super) fn start_reduction(&mut self, stage: StageId) -> Result<()> {
        let (strategy, mut access) = self.strategy_and_access();
        strategy.reduce(stage, &mut access)
    }

    /// A stage adds a weight gradient next. If it is its first one of the step, it gets memory for its
    /// gradients. Where stages lend each other this memory, it may have to wait for it.
    pub(super) fn make_gradients_whole(&mut self, stage: StageId) -> Result<()> {
        if self.chunk(stage).has_whole_gradients {
            return Ok(());
        }
        let (strategy, mut access) = self.strategy_and_access();
        while Lending::is_full(access.chunks) {
            strategy.finish_one(&mut access)?;
        }
        access.lending.begin(chunk_of(access.chunks, stage));
        Ok(())
    }

    /// Goes on with the updates of what this rank owns, without waiting.
    pub(super) fn serve(&mut self) -> Result<()> {
        let (strategy, mut access) = self.strategy_and_access();
        strategy.progress(&mut access).map(drop)
    }

    /// A wire, if it comes while the rank has something to do for the replicas.
    pub(super) fn reduce_until(&mut self, peer: WorldRank, tag: Tag) -> Result<Option<S::Wire>> {
        let (strategy, mut access) = self.strategy_and_access();
        strategy.progress_until((peer, tag), &mut access)
    }

    /// A stage's step, while weights may be stale. The rank's last one ends the rank's step.
    pub(super) fn end_stale_step(&mut self, run: &mut Execution<'_>) -> Result<()> {
        run.stepped += 1;
        if run.stepped < self.chunks.len() {
            return Ok(());
        }
        let since = Instant::now();
        let mut agreement = std::mem::take(&mut self.agreement);
        agreement.begin();
        self.tell_scores(&mut agreement);
        self.agreement = agreement;
        if let (Strategy::Server(Some(server)), mut access) = self.strategy_and_access() {
            let ended = server.end_step((run.asks, run.learning_rate), &mut access)?;
            (run.outcome, run.asked) = (Some(ended.outcome), ended.asks);
        }
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
        let Strategy::Server(server) = &mut self.strategy else {
            return Ok(Settled::default());
        };
        let Some(server) = server.take() else {
            return Ok(Settled::default());
        };
        let (name, rank) = (self.name(), self.at.rank);
        let settled = caught(|| {
            let (_, mut access) = self.strategy_and_access();
            server.settle(&mut access)
        });
        settled.map_err(|error| {
            let last = self.schedule.actions(rank).iter().enumerate().next_back();
            let (index, action) = last.expect("lowering ends each rank with a step");
            error.at_action(name, index, action)
        })
    }
}
