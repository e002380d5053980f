//! One stage of a parameter server: gradients that come, and weights that come back.

use std::collections::VecDeque;

use pipewright_stages::optimizer::{self, Optimizer, Update};
use pipewright_stages::{Init, Parameter, Stage, Together};

use super::access::{ReplicaAccess, Topic};
use super::bucket_sum::add_block;
use super::share::ReplicaShare;
use super::slices::{Slices, Span};
use crate::error::Result;
use crate::fabric::{Tag, Transport};
use crate::groups::{Node, Sums};
use crate::id::{StageId, WorldRank};
use crate::worker::chunk::Chunk;
use crate::worker::partials::visit;

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
    sums: Vec<BlockQueue>,
    /// By replica.
    weights: Vec<OwnerWeights>,
    adder: Sums<Vec<u8>>,
}

/// The weights of one owner.
#[derive(Debug)]
struct OwnerWeights {
    stream: BlockQueue,
    /// The buckets of the newest version, unless the stage has it.
    newest: Vec<Vec<u8>>,
    /// How many updates the newest version has.
    version: u64,
    /// How many updates those in the stage have.
    installed: u64,
}

impl Served {
    /// Begins with the stage's weights, and takes the optimizer's state out of it.
    pub(super) fn new<S: Stage>(chunk: &mut Chunk<S>, share: &ReplicaShare) -> Result<Self> {
        let (stage, slices) = (chunk.id, chunk.slices.clone());
        let stream = |replica, topic: Topic| BlockQueue::new(share.rank(replica), topic.tag(stage));
        let all = 0..share.replicas();
        Ok(Self {
            stage,
            owned: Owned::take(&mut chunk.stage, &slices, share.replica)?,
            nodes: all.clone().map(|replica| share.nodes_of(replica)).collect(),
            sums: all.clone().map(|replica| stream(replica, Topic::Sums)).collect(),
            weights: all.map(|owner| OwnerWeights::new(stream(owner, Topic::Weights))).collect(),
            slices,
            adder: Sums::default(),
        })
    }

    /// Sends this replica's sums of a step to their owners.
    pub(super) fn push<S: Stage>(&mut self, access: &mut ReplicaAccess<'_, S>) -> Result<()> {
        let own = access.share.replica;
        let nodes = self.nodes[own as usize].len();
        for owner in (0..access.share.replicas()).filter(|_| nodes > 0) {
            for spans in self.slices.of(owner) {
                let mut block = access.block();
                (0..nodes)
                    .try_for_each(|node| access.chunk(self.stage).append_sums(node, spans, &mut block))?;
                if owner == own {
                    self.sums[own as usize].blocks.push_back(block);
                    continue;
                }
                access.send(owner, Topic::Sums, self.stage, block)?;
            }
        }
        let chunk = access.chunk(self.stage);
        chunk.forget_sums();
        Ok(())
    }

    /// Takes in what has come from other replicas. Returns whether there was anything.
    pub(super) fn take_in<S: Stage>(&mut self, access: &mut ReplicaAccess<'_, S>) -> Result<bool> {
        let mut moved = false;
        for replica in access.share.others() {
            let index = replica as usize;
            moved |= self.sums[index].take_in(access.transport)?;
            let weights = &mut self.weights[index];
            moved |= weights.stream.take_in(access.transport)?;
            weights.sort(self.slices.of(replica).len(), access.blocks);
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
    pub(super) fn add_up<S: Stage>(&mut self, access: &mut ReplicaAccess<'_, S>) -> Result<()> {
        for spans in self.slices.of(access.share.replica) {
            let mut add = |mut sum: Vec<u8>, more: Vec<u8>| {
                add_block(&mut sum, &more);
                access.blocks.push(more);
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
            access.blocks.push(total);
        }
        Ok(())
    }

    /// Sends the owned weights to all other replicas.
    pub(super) fn send_weights<S: Stage>(&self, access: &mut ReplicaAccess<'_, S>) -> Result<()> {
        for replica in access.share.others() {
            for spans in self.slices.of(access.share.replica) {
                let mut block = access.block();
                self.owned.append_weights(spans, &mut block)?;
                access.send(replica, Topic::Weights, self.stage, block)?;
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
    fn others(&self, own: u32) -> impl Iterator<Item = &OwnerWeights> {
        let all = (0..).zip(&self.weights);
        all.filter(move |&(owner, _)| owner != own && !self.slices.of(owner).is_empty())
            .map(|(_, weights)| weights)
    }

    /// Puts the newest weights into the stage. The stage must have dropped what it computed from old ones.
    pub(super) fn install<S: Stage>(&mut self, access: &mut ReplicaAccess<'_, S>) -> Result<()> {
        for (owner, weights) in (0..).zip(&mut self.weights) {
            for (bucket, block) in weights.newest.drain(..).enumerate() {
                access.chunk(self.stage).set_weights(owner, bucket, &block)?;
                access.blocks.push(block);
            }
            weights.installed = weights.version;
        }
        let own = access.share.replica;
        for (bucket, spans) in self.slices.of(own).iter().enumerate() {
            let mut block = access.block();
            self.owned.append_weights(spans, &mut block)?;
            access.chunk(self.stage).set_weights(own, bucket, &block)?;
            access.blocks.push(block);
        }
        Ok(())
    }
}

impl OwnerWeights {
    fn new(stream: BlockQueue) -> Self {
        Self { stream, newest: Vec::new(), version: 0, installed: 0 }
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

/// What this replica owns of a stage's parameters, with the optimizer's state for it. A server updates it
/// while the stage works with older weights.
#[derive(Debug)]
pub(super) struct Owned {
    /// By parameter: where its owned numbers begin, and a parameter of these numbers alone.
    parts: Vec<(usize, Parameter)>,
}

impl Owned {
    /// Copies the owned weights of a stage, and takes the optimizer's state out of it.
    pub(super) fn take<S: Stage>(stage: &mut S, slices: &Slices, replica: u32) -> Result<Self> {
        let mut parts = Vec::new();
        visit(stage, |index, parameter| {
            let owned = slices.owned(index, replica);
            // An optimizer may ask whether it is a matrix.
            let dims = [1, owned.len()];
            let dims = &dims[usize::from(!parameter.is_matrix())..];
            let mut part = Parameter::new(parameter.name(), dims, Init::Zeros, 0);
            part.value.copy_from_slice(&parameter.value[owned.clone()]);
            if let Some(share) = parameter.running_share() {
                part = part.running(share);
            }
            part.train_by(parameter.training());
            part.state = std::mem::take(&mut parameter.state);
            parts.push((owned.start, part));
            Ok(())
        })?;
        Ok(Self { parts })
    }

    /// Gives the optimizer's state back to the stage.
    pub(super) fn give_back<S: Stage>(self, stage: &mut S) -> Result<()> {
        let mut parts = self.parts.into_iter();
        visit(stage, |_, parameter| {
            let part = parts.next();
            parameter.state = part.map(|(_, part)| part.state).unwrap_or_default();
            Ok(())
        })
    }

    /// Sets these numbers of the gradients.
    pub(super) fn set_gradients(&mut self, spans: &[Span], mut block: &[u8]) -> Result<()> {
        for (index, range) in spans {
            let (numbers, rest) = block.split_at(range.len() * size_of::<f32>());
            block = rest;
            let (start, part) = &mut self.parts[*index];
            part.set_grad(range.start - *start, numbers)?;
        }
        Ok(())
    }

    /// Calls `tell` with each owned piece of a parameter's gradient: the parameter, the piece, and the sum of
    /// the squares.
    pub(super) fn squares(&self, mut tell: impl FnMut(usize, usize, f64)) {
        for (index, (start, part)) in self.parts.iter().enumerate() {
            let first = start / Parameter::PIECE;
            for piece in 0..part.pieces().count() {
                part.grad_squares(piece, |sum, square| tell(index, first + sum, square));
            }
        }
    }

    /// Updates the weights.
    pub(super) fn update(&mut self, optimizer: &dyn Optimizer, update: Update) -> Result<()> {
        let mut together = Together::default();
        for (_, part) in &mut self.parts {
            optimizer::update(optimizer, part, update, &mut together)?;
        }
        Ok(together.launch()?)
    }

    /// Appends these weights.
    pub(super) fn append_weights(&self, spans: &[Span], block: &mut Vec<u8>) -> Result<()> {
        for (index, range) in spans {
            let (start, part) = &self.parts[*index];
            part.append_value(range.start - start..range.end - start, block)?;
        }
        Ok(())
    }
}

/// What a rank has sent under one tag and nobody has used yet, in order.
#[derive(Debug)]
pub(super) struct BlockQueue {
    pub(super) from: WorldRank,
    tag: Tag,
    pub(super) blocks: VecDeque<Vec<u8>>,
}

impl BlockQueue {
    /// Blocks with this tag, from this rank.
    pub(super) fn new(from: WorldRank, tag: Tag) -> Self {
        Self { from, tag, blocks: VecDeque::new() }
    }

    /// Takes in what has come. Returns whether there was anything.
    pub(super) fn take_in<W: 'static>(&mut self, transport: &mut dyn Transport<W>) -> Result<bool> {
        let before = self.blocks.len();
        while let Some(block) = transport.poll_bytes(self.from, self.tag)? {
            self.blocks.push_back(block);
        }
        Ok(self.blocks.len() > before)
    }
}
