//! Sums over replicas by the host: gradients and new weights travel in blocks.

use std::time::Instant;

use pipewright_stages::Stage;

use super::reach::{Reach, Topic, WINDOW};
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
    /// How far the exchange of new weights has come, by replica.
    exchanged: Vec<Exchanged>,
}

/// How far the exchange of new weights with one replica has come, in buckets.
#[derive(Clone, Copy, Debug, Default)]
struct Exchanged {
    sent: usize,
    received: usize,
}

impl HostSums {
    pub(in crate::worker) fn new<S: Stage>(plan: &Plan, share: &ReplicaShare, chunks: &[Chunk<S>]) -> Self {
        Self {
            reductions: Reduction::of_all(plan, share, chunks),
            exchanged: Vec::new(),
        }
    }

    /// Starts the sum of a stage's gradients. The first blocks are sent at once.
    pub(super) fn begin<S: Stage>(
        &mut self,
        stage: StageId,
        chunks: &mut [Chunk<S>],
        reach: &mut Reach<'_, S::Wire>,
    ) -> Result<()> {
        let mut reductions = self.reductions.iter_mut();
        let reduction = reductions.find(|reduction| reduction.stage() == stage);
        reduction
            .expect("it has all stages of the rank")
            .start(reach.share);
        reach.meter.reduction_starts(stage);
        let since = Instant::now();
        self.progress(chunks, reach)?;
        reach.meter.reduced(since.elapsed());
        Ok(())
    }

    /// Whether sums are under way.
    pub(super) fn is_reducing(&self) -> bool {
        self.reductions.iter().any(Reduction::is_active)
    }

    /// Continues all sums, without waiting. Returns whether it did anything.
    pub(super) fn progress<S: Stage>(
        &mut self,
        chunks: &mut [Chunk<S>],
        reach: &mut Reach<'_, S::Wire>,
    ) -> Result<bool> {
        let mut moved = false;
        let active = self
            .reductions
            .iter_mut()
            .filter(|reduction| reduction.is_active());
        for reduction in active {
            let chunk = chunk_of(chunks, reduction.stage());
            moved |= reduction.progress(chunk, reach)?;
            if !reduction.is_active() {
                reach.meter.reduction_ends(reduction.stage());
            }
        }
        Ok(moved)
    }

    /// Waits until all sums are there.
    pub(super) fn finish<S: Stage>(
        &mut self,
        chunks: &mut [Chunk<S>],
        reach: &mut Reach<'_, S::Wire>,
    ) -> Result<()> {
        let since = Instant::now();
        if !self.is_reducing() {
            return Ok(());
        }
        while self.is_reducing() {
            if !self.progress(chunks, reach)? {
                let first = self.reductions.iter().find(|reduction| reduction.is_active());
                let awaited = first.and_then(|reduction| reduction.awaited(reach.share));
                reach.listen(awaited.map_or(WaitsFor::Nobody, WaitsFor::Rank))?;
            }
        }
        reach.meter.reduced(since.elapsed());
        Ok(())
    }

    /// Exchanges the new weights of all stages. A schedule from a file may step in any order, but all
    /// replicas must exchange in one order.
    pub(super) fn exchange_weights<S: Stage>(
        &mut self,
        chunks: &mut [Chunk<S>],
        reach: &mut Reach<'_, S::Wire>,
    ) -> Result<()> {
        chunks
            .iter_mut()
            .try_for_each(|chunk| self.exchange(chunk, reach))
    }

    /// Sends the weights that this replica has updated to all others, and receives theirs. A replica is at
    /// most [`WINDOW`] buckets ahead of what it has received.
    fn exchange<S: Stage>(&mut self, chunk: &mut Chunk<S>, reach: &mut Reach<'_, S::Wire>) -> Result<()> {
        let since = Instant::now();
        self.exchanged.clear();
        self.exchanged
            .resize(reach.share.replicas() as usize, Exchanged::default());
        loop {
            let (mut moved, mut awaited) = (false, None);
            for replica in reach.share.others() {
                // As many blocks go each way as the replica with more buckets has. The other one's last
                // blocks are empty. So neither is sent more than it has room for.
                let [mine, theirs] = [reach.share.replica, replica].map(|of| chunk.slices.of(of).len());
                let blocks = mine.max(theirs);
                let exchanged = &mut self.exchanged[replica as usize];
                moved |= exchanged.give(chunk, replica, blocks, reach)?;
                moved |= exchanged.take(chunk, replica, blocks, reach)?;
                if exchanged.sent < blocks || exchanged.received < blocks {
                    awaited = Some(reach.share.rank(replica));
                }
            }
            let Some(peer) = awaited else { break };
            if !moved {
                reach.listen(WaitsFor::Rank(peer))?;
            }
        }
        reach.meter.reduced(since.elapsed());
        Ok(())
    }
}

impl Exchanged {
    /// Sends a replica the next updated weights, as far as this one may be ahead.
    fn give<S: Stage>(
        &mut self,
        chunk: &mut Chunk<S>,
        replica: u32,
        blocks: usize,
        reach: &mut Reach<'_, S::Wire>,
    ) -> Result<bool> {
        let most = blocks.min(self.received + WINDOW);
        let before = self.sent;
        while self.sent < most {
            let mut block = reach.block();
            chunk.append_weights(reach.share.replica, self.sent, &mut block)?;
            reach.send(replica, Topic::Weights, chunk.id, block)?;
            self.sent += 1;
        }
        Ok(self.sent > before)
    }

    /// Takes what has come of a replica's updated weights.
    fn take<S: Stage>(
        &mut self,
        chunk: &mut Chunk<S>,
        replica: u32,
        blocks: usize,
        reach: &mut Reach<'_, S::Wire>,
    ) -> Result<bool> {
        let before = self.received;
        while self.received < blocks
            && let Some(block) = reach.poll(replica, Topic::Weights, chunk.id)?
        {
            chunk.set_weights(replica, self.received, &block)?;
            reach.blocks.push(block);
            self.received += 1;
        }
        Ok(self.received > before)
    }
}
