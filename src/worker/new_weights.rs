//! The exchange of updated weights, if each replica updates only its own part.

use std::time::Instant;

use pipewright_stages::Stage;

use super::Worker;
use super::chunk::chunk_of;
use super::progress::WaitsFor;
use super::reduction::{Topic, WINDOW, slices_of};
use super::share::Exchanged;
use crate::error::Result;
use crate::id::StageId;

impl<S: Stage> Worker<S> {
    /// Sends the weights that this replica has updated to all others, and receives theirs. A replica is at
    /// most [`WINDOW`] buckets ahead of what it has received.
    pub(super) fn exchange_new_weights(&mut self, stage: StageId) -> Result<()> {
        let since = Instant::now();
        let mut all = std::mem::take(&mut self.exchanged);
        all.clear();
        all.resize(self.share.replicas() as usize, Exchanged::default());
        loop {
            let (mut moved, mut awaited) = (false, None);
            for replica in self.share.others() {
                let exchanged = &mut all[replica as usize];
                moved |= self.give_new_weights(stage, replica, exchanged)?;
                moved |= self.take_new_weights(stage, replica, exchanged)?;
                let all = self.blocks_with(stage, replica);
                if exchanged.sent < all || exchanged.received < all {
                    awaited = Some(self.share.rank(replica));
                }
            }
            let Some(peer) = awaited else { break };
            if !moved {
                let transport = &mut self.transport;
                self.meter.wait(WaitsFor::Rank(peer), || transport.listen())?;
            }
        }
        self.exchanged = all;
        self.meter.reduced(since.elapsed());
        Ok(())
    }

    /// Sends a replica the next updated weights, as far as this one may be ahead.
    fn give_new_weights(&mut self, stage: StageId, replica: u32, exchanged: &mut Exchanged) -> Result<bool> {
        let (own, peer) = (self.share.replica, self.share.rank(replica));
        let most = self.blocks_with(stage, replica).min(exchanged.received + WINDOW);
        let before = exchanged.sent;
        while exchanged.sent < most {
            let mut block = self.blocks.pop().unwrap_or_default();
            block.clear();
            let slices = slices_of(&self.reductions, stage);
            if let Some(spans) = slices.of(own).get(exchanged.sent) {
                chunk_of(&mut self.chunks, stage).append_weights(spans, &mut block)?;
            }
            self.transport
                .send_bytes(peer, Topic::Weights.tag(stage), block)?;
            exchanged.sent += 1;
        }
        Ok(exchanged.sent > before)
    }

    /// Takes what has come of a replica's updated weights.
    fn take_new_weights(&mut self, stage: StageId, replica: u32, exchanged: &mut Exchanged) -> Result<bool> {
        let peer = self.share.rank(replica);
        let before = exchanged.received;
        while exchanged.received < self.blocks_with(stage, replica)
            && let Some(block) = self.transport.poll_bytes(peer, Topic::Weights.tag(stage))?
        {
            let slices = slices_of(&self.reductions, stage);
            if let Some(spans) = slices.of(replica).get(exchanged.received) {
                chunk_of(&mut self.chunks, stage).set_weights(spans, &block)?;
            }
            self.blocks.push(block);
            exchanged.received += 1;
        }
        Ok(exchanged.received > before)
    }

    /// How many blocks go each way between this replica and another one: as many as the one with more buckets
    /// has. The other one's last blocks are empty. So neither is sent more than it has room for.
    fn blocks_with(&self, stage: StageId, replica: u32) -> usize {
        let slices = slices_of(&self.reductions, stage);
        let [mine, theirs] = [self.share.replica, replica].map(|of| slices.of(of).len());
        mine.max(theirs)
    }
}
