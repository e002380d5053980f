//! The exchange of updated weights, if each replica updates only its own part.

use std::time::Instant;

use pipewright_stages::{Parameter, Stage};

use super::Worker;
use super::chunk::Chunk;
use super::progress::WaitsFor;
use super::reduction::{Topic, WINDOW};
use super::slices::Span;
use crate::error::Result;
use crate::id::StageId;

/// How far the exchange with one replica has come, in buckets.
#[derive(Clone, Copy, Default)]
struct Exchanged {
    sent: usize,
    received: usize,
}

impl<S: Stage> Worker<S> {
    /// Sends the weights that this replica has updated to all others, and receives theirs. A replica is at
    /// most [`WINDOW`] buckets ahead of what it has received.
    pub(super) fn exchange_new_weights(&mut self, stage: StageId) -> Result<()> {
        let since = Instant::now();
        let mut all = vec![Exchanged::default(); self.share.replicas() as usize];
        loop {
            let (mut moved, mut awaited) = (false, None);
            for replica in self.share.others() {
                let exchanged = &mut all[replica as usize];
                moved |= self.give_new_weights(stage, replica, exchanged)?;
                moved |= self.take_new_weights(stage, replica, exchanged)?;
                let own = self.share.replica;
                let mine = self.chunk(stage).buckets(own).len();
                if exchanged.sent < mine || exchanged.received < self.chunk(stage).buckets(replica).len() {
                    awaited = Some(self.share.rank(replica));
                }
            }
            let Some(peer) = awaited else { break };
            if !moved {
                let transport = &mut self.transport;
                self.meter.wait(WaitsFor::Rank(peer), || transport.listen())?;
            }
        }
        self.meter.reduced(since.elapsed());
        Ok(())
    }

    /// Sends a replica the next updated weights, as far as this one may be ahead.
    fn give_new_weights(&mut self, stage: StageId, replica: u32, exchanged: &mut Exchanged) -> Result<bool> {
        let (own, peer) = (self.share.replica, self.share.rank(replica));
        let chunk = self.chunks.iter_mut().find(|chunk| chunk.id == stage);
        let chunk = chunk.expect("checked: the stage is on this rank");
        let mine = chunk.buckets(own).len();
        let most = match exchanged.received == chunk.buckets(replica).len() {
            true => mine,
            false => mine.min(exchanged.received + WINDOW),
        };
        let before = exchanged.sent;
        while exchanged.sent < most {
            let mut block = self.blocks.pop().unwrap_or_default();
            block.clear();
            chunk.append_weights(own, exchanged.sent, &mut block)?;
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
        while exchanged.received < self.chunk(stage).buckets(replica).len()
            && let Some(block) = self.transport.poll_bytes(peer, Topic::Weights.tag(stage))?
        {
            let chunk = self.chunk(stage);
            chunk.set_weights(replica, exchanged.received, &block)?;
            self.blocks.push(block);
            exchanged.received += 1;
        }
        Ok(exchanged.received > before)
    }
}

impl<S: Stage> Chunk<S> {
    /// The buckets of a replica.
    fn buckets(&self, replica: u32) -> &[Vec<Span>] {
        let reduction = self.reduction.as_ref();
        reduction.map_or(&[], |reduction| reduction.slices().of(replica))
    }

    /// Appends the weights of a replica's bucket.
    fn append_weights(&mut self, replica: u32, bucket: usize, block: &mut Vec<u8>) -> Result<()> {
        self.visit_bucket(replica, bucket, |parameter, (_, range)| {
            Ok(parameter.append_value(range.clone(), block)?)
        })
    }

    /// Sets the weights of a replica's bucket.
    fn set_weights(&mut self, replica: u32, bucket: usize, mut block: &[u8]) -> Result<()> {
        self.visit_bucket(replica, bucket, |parameter, (_, range)| {
            let (numbers, rest) = block.split_at(range.len() * size_of::<f32>());
            block = rest;
            Ok(parameter.set_value(range.start, numbers)?)
        })
    }

    fn visit_bucket(
        &mut self,
        replica: u32,
        bucket: usize,
        mut act: impl FnMut(&mut Parameter, &Span) -> Result<()>,
    ) -> Result<()> {
        let Some(reduction) = &self.reduction else {
            return Ok(());
        };
        let mut rest = reduction.slices().of(replica)[bucket].iter().peekable();
        let (mut index, mut result) = (0, Ok(()));
        self.stage.visit_parameters(&mut |parameter| {
            while let Some(span) = rest.next_if(|(of, _)| *of == index) {
                if result.is_ok() {
                    result = act(parameter, span);
                }
            }
            index += 1;
        });
        result
    }
}
