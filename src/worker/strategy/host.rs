//! Sums over replicas by the host: gradients and new weights travel in blocks.

use std::time::Instant;

use pipewright_stages::Stage;

use super::access::{ReplicaAccess, Topic, WINDOW};
use super::reduction::Reduction;
use super::share::ReplicaShare;
use crate::error::Result;
use crate::id::StageId;
use crate::worker::chunk::{Chunk, chunk_of};
use crate::worker::plan::Plan;
use crate::worker::progress::WaitsFor;

/// The sums of a rank's stages over their replicas.
#[derive(Debug)]
pub(in crate::worker) struct HostSums {
    reductions: Vec<Reduction>,
    /// The memory is used again in each step.
    exchanged: Vec<Exchanged>,
}

/// How far the exchange of a stage's new weights with another replica has come.
#[derive(Debug)]
struct Exchanged {
    replica: u32,
    /// How many blocks go each way: the larger number of buckets of the two. The other one's last blocks are
    /// empty. So neither is sent more than it has room for.
    blocks: usize,
    sent: usize,
    received: usize,
}

impl HostSums {
    pub(in crate::worker) fn new<S: Stage>(plan: &Plan, share: &ReplicaShare, chunks: &[Chunk<S>]) -> Self {
        Self { reductions: Reduction::of_all(plan, share, chunks), exchanged: Vec::new() }
    }

    /// Starts the sum of a stage's gradients. The first blocks are sent at once.
    pub(super) fn begin<S: Stage>(
        &mut self,
        stage: StageId,
        access: &mut ReplicaAccess<'_, S>,
    ) -> Result<()> {
        let mut reductions = self.reductions.iter_mut();
        let reduction = reductions.find(|reduction| reduction.stage() == stage);
        reduction.expect("it has all stages of the rank").start(access.share);
        access.meter.reduction_starts(stage);
        let since = Instant::now();
        self.progress(access)?;
        access.meter.reduced(since.elapsed());
        Ok(())
    }

    /// Whether sums are under way.
    pub(super) fn is_reducing(&self) -> bool {
        self.reductions.iter().any(Reduction::is_active)
    }

    /// Continues all sums, without waiting. Returns whether it did anything.
    pub(super) fn progress<S: Stage>(&mut self, access: &mut ReplicaAccess<'_, S>) -> Result<bool> {
        let mut moved = false;
        let active = self.reductions.iter_mut().filter(|reduction| reduction.is_active());
        for reduction in active {
            moved |= reduction.progress(access)?;
            if !reduction.is_active() {
                access.lending.end(chunk_of(access.chunks, reduction.stage()));
                access.meter.reduction_ends(reduction.stage());
            }
        }
        Ok(moved)
    }

    /// Waits until all sums are there.
    pub(super) fn finish<S: Stage>(&mut self, access: &mut ReplicaAccess<'_, S>) -> Result<()> {
        while self.is_reducing() {
            self.finish_one(access)?;
        }
        Ok(())
    }

    /// Waits until one of the sums is there.
    pub(super) fn finish_one<S: Stage>(&mut self, access: &mut ReplicaAccess<'_, S>) -> Result<()> {
        let since = Instant::now();
        let count = |sums: &Self| sums.reductions.iter().filter(|reduction| reduction.is_active()).count();
        let before = count(self);
        assert!(before > 0, "a sum is under way");
        while count(self) == before {
            if !self.progress(access)? {
                let first = self.reductions.iter().find(|reduction| reduction.is_active());
                let awaited = first.and_then(|reduction| reduction.awaited(access.share));
                access.listen(awaited.map_or(WaitsFor::Nobody, WaitsFor::Rank))?;
            }
        }
        access.meter.reduced(since.elapsed());
        Ok(())
    }

    /// Exchanges the new weights of all stages. A schedule from a file may step in any order, but all
    /// replicas must exchange in one order.
    pub(super) fn exchange_weights<S: Stage>(&mut self, access: &mut ReplicaAccess<'_, S>) -> Result<()> {
        let mut all = 0..access.chunks.len();
        all.try_for_each(|index| self.exchange(access.chunks[index].id, access))
    }

    /// Sends the weights that this replica has updated to all others, and receives theirs. A replica is at
    /// most [`WINDOW`] buckets ahead of what it has received.
    fn exchange<S: Stage>(&mut self, stage: StageId, access: &mut ReplicaAccess<'_, S>) -> Result<()> {
        let since = Instant::now();
        let own = access.share.replica;
        let slices = &chunk_of(access.chunks, stage).slices;
        self.exchanged.clear();
        self.exchanged.extend(access.share.others().map(|replica| Exchanged {
            replica,
            blocks: slices.of(own).len().max(slices.of(replica).len()),
            sent: 0,
            received: 0,
        }));
        loop {
            let (mut moved, mut awaited) = (false, None);
            for exchanged in &mut self.exchanged {
                moved |= exchanged.give(stage, access)?;
                moved |= exchanged.take(stage, access)?;
                if exchanged.sent.min(exchanged.received) < exchanged.blocks {
                    awaited = Some(access.share.rank(exchanged.replica));
                }
            }
            let Some(peer) = awaited else { break };
            if !moved {
                access.listen(WaitsFor::Rank(peer))?;
            }
        }
        access.meter.reduced(since.elapsed());
        Ok(())
    }
}

impl Exchanged {
    /// Sends the next updated weights, as far as this replica may be ahead.
    fn give<S: Stage>(&mut self, stage: StageId, access: &mut ReplicaAccess<'_, S>) -> Result<bool> {
        let most = self.blocks.min(self.received + WINDOW);
        let (own, before) = (access.share.replica, self.sent);
        while self.sent < most {
            let mut block = access.block();
            access.chunk(stage).append_weights(own, self.sent, &mut block)?;
            access.send(self.replica, Topic::Weights, stage, block)?;
            self.sent += 1;
        }
        Ok(self.sent > before)
    }

    /// Takes what has come of the other replica's updated weights.
    fn take<S: Stage>(&mut self, stage: StageId, access: &mut ReplicaAccess<'_, S>) -> Result<bool> {
        let before = self.received;
        while self.received < self.blocks
            && let Some(block) = access.poll(self.replica, Topic::Weights, stage)?
        {
            access.chunk(stage).set_weights(self.replica, self.received, &block)?;
            access.blocks.push(block);
            self.received += 1;
        }
        Ok(self.received > before)
    }
}
