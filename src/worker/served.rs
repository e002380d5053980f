//! One stage of a parameter server: gradients that come, and weights that come back.

use pipewright_stages::Stage;

use super::bucket_sum::add_block;
use super::chunk::Chunk;
use super::owned::Owned;
use super::reduction::{Reach, Topic};
use super::slices::Slices;
use super::stream::Stream;
use crate::error::Result;
use crate::groups::{Node, Sums};
use crate::id::StageId;

/// What a rank holds of one stage while weights may be stale: as the owner of some numbers, and as a replica
/// that uses the other owners' numbers.
#[derive(Debug)]
pub(super) struct Served {
    pub(super) stage: StageId,
    slices: Slices,
    pub(super) owned: Owned,
    /// The sums that each replica makes, by replica.
    nodes: Vec<Vec<Node>>,
    /// The buckets that this rank owns, step after step, by replica.
    sums: Vec<Stream>,
    /// By replica.
    weights: Vec<Weights>,
    adder: Sums<Vec<u8>>,
}

/// The weights of one owner.
#[derive(Debug)]
struct Weights {
    stream: Stream,
    /// The buckets of the newest version, unless the stage has it.
    newest: Vec<Vec<u8>>,
    /// How many updates the newest version has.
    version: u64,
    /// How many updates those in the stage have.
    installed: u64,
}

impl Served {
    /// Begins with the stage's weights, and takes the optimizer's state out of it.
    pub(super) fn new<S: Stage, W>(
        chunk: &mut Chunk<S>,
        slices: Slices,
        reach: &Reach<'_, W>,
    ) -> Result<Self> {
        let (stage, share) = (chunk.id, reach.share);
        let stream = |replica, topic: Topic| Stream::new(share.rank(replica), topic.tag(stage));
        let all = 0..share.replicas();
        Ok(Self {
            stage,
            owned: Owned::take(&mut chunk.stage, &slices, share.replica)?,
            nodes: all.clone().map(|replica| share.nodes_of(replica)).collect(),
            sums: all.clone().map(|replica| stream(replica, Topic::Sums)).collect(),
            weights: all
                .map(|owner| Weights::new(stream(owner, Topic::Weights)))
                .collect(),
            slices,
            adder: Sums::default(),
        })
    }

    /// Sends this replica's sums of a step to their owners.
    pub(super) fn push<S: Stage>(
        &mut self,
        chunk: &mut Chunk<S>,
        reach: &mut Reach<'_, S::Wire>,
    ) -> Result<()> {
        let own = reach.share.replica;
        let nodes = self.nodes[own as usize].len();
        for owner in (0..reach.share.replicas()).filter(|_| nodes > 0) {
            for spans in self.slices.of(owner) {
                let mut block = reach.block();
                (0..nodes).try_for_each(|node| chunk.append_sums(node, spans, &mut block))?;
                if owner == own {
                    self.sums[own as usize].blocks.push_back(block);
                    continue;
                }
                let peer = reach.share.rank(owner);
                reach
                    .transport
                    .send_bytes(peer, Topic::Sums.tag(self.stage), block)?;
            }
        }
        chunk.partials.clear(&mut chunk.stage);
        Ok(())
    }

    /// Takes in what has come from other replicas. Returns whether there was anything.
    pub(super) fn take_in<W: 'static>(&mut self, reach: &mut Reach<'_, W>) -> Result<bool> {
        let mut moved = false;
        for replica in reach.share.others() {
            let index = replica as usize;
            moved |= self.sums[index].take_in(reach.transport)?;
            let weights = &mut self.weights[index];
            moved |= weights.stream.take_in(reach.transport)?;
            weights.sort(self.slices.of(replica).len(), reach.blocks);
        }
        Ok(moved)
    }

    /// Whether all sums of the next update are there.
    pub(super) fn has_sums(&self, own: u32) -> bool {
        let buckets = self.slices.of(own).len();
        let mut all = self.sums.iter().zip(&self.nodes);
        all.all(|(sums, nodes)| nodes.is_empty() || sums.blocks.len() >= buckets)
    }

    /// Adds up the next update's sums by the tree.
    pub(super) fn add_up<W>(&mut self, reach: &mut Reach<'_, W>) -> Result<()> {
        for spans in self.slices.of(reach.share.replica) {
            let mut add = |mut sum: Vec<u8>, more: Vec<u8>| {
                add_block(&mut sum, &more);
                reach.blocks.push(more);
                sum
            };
            for (nodes, sums) in self.nodes.iter().zip(&mut self.sums) {
                let [first, rest @ ..] = &nodes[..] else { continue };
                let mut block = sums.blocks.pop_front().expect("the update's sums are there");
                let size = block.len() / nodes.len();
                let later: Vec<Vec<u8>> = block[size..].chunks(size).map(<[u8]>::to_vec).collect();
                block.truncate(size);
                self.adder.push(*first, block, &mut add);
                for (node, block) in rest.iter().zip(later) {
                    self.adder.push(*node, block, &mut add);
                }
            }
            let total = self.adder.total(add).expect("the first replica has a group");
            self.owned.set_gradients(spans, &total)?;
            reach.blocks.push(total);
        }
        Ok(())
    }

    /// Sends the owned weights to all other replicas.
    pub(super) fn send_weights<W: 'static>(&self, reach: &mut Reach<'_, W>) -> Result<()> {
        for replica in reach.share.others() {
            for spans in self.slices.of(reach.share.replica) {
                let mut block = reach.block();
                self.owned.append_weights(spans, &mut block)?;
                let peer = reach.share.rank(replica);
                reach
                    .transport
                    .send_bytes(peer, Topic::Weights.tag(self.stage), block)?;
            }
        }
        Ok(())
    }

    /// Whether the weights of all other owners are here, with at least `version` updates.
    pub(super) fn has_weights(&self, own: u32, version: u64) -> bool {
        self.others(own).all(|weights| weights.version >= version)
    }

    /// How many updates all weights in the stage have at least. `applied`: the updates of the own weights
    /// there.
    pub(super) fn installed(&self, own: u32, applied: u64) -> u64 {
        let others = self.others(own).map(|weights| weights.installed);
        others.fold(applied, u64::min)
    }

    /// The other owners that own anything.
    fn others(&self, own: u32) -> impl Iterator<Item = &Weights> {
        let all = (0..).zip(&self.weights);
        all.filter(move |&(owner, _)| owner != own && !self.slices.of(owner).is_empty())
            .map(|(_, weights)| weights)
    }

    /// Puts the newest weights into the stage. The stage must have dropped what it computed from old ones.
    pub(super) fn install<S: Stage, W>(
        &mut self,
        chunk: &mut Chunk<S>,
        reach: &mut Reach<'_, W>,
    ) -> Result<()> {
        for (owner, weights) in (0..).zip(&mut self.weights) {
            for (spans, block) in self.slices.of(owner).iter().zip(weights.newest.drain(..)) {
                chunk.set_weights(spans, &block)?;
                reach.blocks.push(block);
            }
            weights.installed = weights.version;
        }
        for spans in self.slices.of(reach.share.replica) {
            let mut block = reach.block();
            self.owned.append_weights(spans, &mut block)?;
            chunk.set_weights(spans, &block)?;
            reach.blocks.push(block);
        }
        Ok(())
    }
}

impl Weights {
    fn new(stream: Stream) -> Self {
        Self {
            stream,
            newest: Vec::new(),
            version: 0,
            installed: 0,
        }
    }

    /// Finds the newest version that has come as a whole, in `buckets` buckets. Older ones are not needed.
    fn sort(&mut self, buckets: usize, spare: &mut Vec<Vec<u8>>) {
        while buckets > 0 && self.stream.blocks.len() >= buckets {
            spare.append(&mut self.newest);
            self.newest.extend(self.stream.blocks.drain(..buckets));
            self.version += 1;
        }
    }
}
