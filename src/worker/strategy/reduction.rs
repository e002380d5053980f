//! The sum of one stage's gradients over its replicas.
//!
//! Each replica owns some of the stage's numbers ([`Slices`](super::slices::Slices)). It receives the other
//! replicas' sums of these numbers, adds all up by the tree of [`groups`](crate::groups), and answers with
//! the total. So what is added to what does not depend on who is early. Without answers, each replica sends
//! its sums to all others, and all add up everything. That is quicker for a stage of few numbers, and between
//! two replicas, where it sends no more.
//!
//! A replica sends an owner at most [`WINDOW`] buckets before their answers come. So what is on the way needs
//! little memory, and the answers use the memory of what they answer.

use pipewright_stages::{Stage, lengthen_sums, shorten_sums};

use super::access::{ReplicaAccess, Topic, WINDOW};
use super::bucket_sum::{Addend, Adder};
use super::share::ReplicaShare;
use super::slices::Span;
use crate::error::Result;
use crate::groups::{Node, Sums, is_exchanged};
use crate::id::{StageId, WorldRank};
use crate::worker::chunk::{Chunk, chunk_of};
use crate::worker::plan::Plan;

/// What an owner answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answers {
    /// The total.
    Totals,
    /// An empty block: the others do not need the total, because the owner updates the weights.
    Receipts,
    /// Nothing: all replicas add up all numbers.
    None,
}

/// A stage's reduction: how it is done, and how far it has come in this step.
#[derive(Debug)]
pub(super) struct Reduction {
    stage: StageId,
    answers: Answers,
    /// Whether sums and answers are sent in 16 bits.
    are_short: bool,
    /// The buckets that each replica adds up. Only the first entry counts where all replicas add up all.
    parts: Vec<Vec<Vec<Span>>>,
    /// The sums that each replica makes, by replica.
    nodes: Vec<Vec<Node>>,
    is_active: bool,
    /// How many buckets each owner has been sent, by replica.
    sent: Vec<usize>,
    /// How many of these are done, by replica.
    done: Vec<usize>,
    /// How many of its own buckets this rank has added up.
    added: usize,
    /// The next own bucket, by replica.
    next: Vec<Option<Vec<u8>>>,
    sums: Sums<Addend>,
}

impl Reduction {
    /// The reductions of a rank's stages.
    pub(super) fn of_all<S: Stage>(plan: &Plan, share: &ReplicaShare, chunks: &[Chunk<S>]) -> Vec<Self> {
        let of = |chunk| Self::new(plan, share, chunk);
        chunks.iter().map(of).collect()
    }

    fn new<S: Stage>(plan: &Plan, share: &ReplicaShare, chunk: &Chunk<S>) -> Self {
        let slices = &chunk.slices;
        let replicas = share.replicas() as usize;
        let nodes: Vec<_> = (0..share.replicas()).map(|replica| share.nodes_of(replica)).collect();
        // A replica must not be sent more than it can take. Its own sums show how far it is.
        let whole = slices.whole();
        let all_show = whole.len() <= WINDOW || nodes.iter().all(|nodes| !nodes.is_empty());
        let answers = match is_exchanged(slices.count(), share.replicas()) {
            _ if plan.is_sharded() => Answers::Receipts,
            true if all_show => Answers::None,
            _ => Answers::Totals,
        };
        let parts = match answers {
            Answers::None => vec![whole],
            Answers::Receipts => (0..share.replicas()).map(|replica| slices.of(replica).to_vec()).collect(),
            Answers::Totals => slices.even(),
        };
        Self {
            stage: chunk.id,
            answers,
            are_short: plan.short_sums,
            parts,
            nodes,
            is_active: false,
            sent: vec![0; replicas],
            done: vec![0; replicas],
            added: 0,
            next: vec![None; replicas],
            sums: Sums::default(),
        }
    }

    /// The stage.
    pub(super) fn stage(&self) -> StageId {
        self.stage
    }

    /// The stage's gradients of this replica are complete.
    pub(super) fn start(&mut self, share: &ReplicaShare) {
        self.is_active = true;
        self.added = 0;
        self.sent.fill(0);
        for replica in share.others() {
            // A replica that has nothing to give waits for totals only.
            let gives = !self.nodes[share.replica as usize].is_empty();
            self.done[replica as usize] = match gives || self.answers == Answers::Totals {
                true => 0,
                false => self.buckets(replica).len(),
            };
        }
    }

    /// Whether the stage's gradients are being added up.
    pub(super) fn is_active(&self) -> bool {
        self.is_active
    }

    /// The sum is there.
    pub(super) fn end(&mut self) {
        self.is_active = false;
    }

    /// The sums that a replica makes.
    pub(super) fn nodes(&self, replica: u32) -> &[Node] {
        &self.nodes[replica as usize]
    }

    /// Whether owners answer with totals.
    pub(super) fn has_totals(&self) -> bool {
        self.answers == Answers::Totals
    }

    /// The buckets that an owner adds up.
    pub(super) fn buckets(&self, owner: u32) -> &[Vec<Span>] {
        match self.answers {
            Answers::None => &self.parts[0],
            _ => &self.parts[owner as usize],
        }
    }

    /// Does all that it can without waiting. Returns whether it did anything.
    ///
    /// # Errors
    /// When a peer has stopped, or the stage's device reports an error.
    pub(super) fn progress<S: Stage>(&mut self, access: &mut ReplicaAccess<'_, S>) -> Result<bool> {
        let mut moved = false;
        for owner in access.share.others() {
            moved |= self.give(owner, access)?;
            moved |= self.take_answers(owner, access)?;
        }
        moved |= self.add_up(access)?;
        if self.awaited(access.share).is_none() {
            self.end();
            let chunk = access.chunk(self.stage);
            chunk.forget_sums();
        }
        Ok(moved)
    }

    /// A rank that must do something before this reduction is done. `None` if it is done.
    pub(super) fn awaited(&self, share: &ReplicaShare) -> Option<WorldRank> {
        let is_missing = |replica: &u32| {
            let index = *replica as usize;
            let for_own = self.added < self.buckets(share.replica).len();
            let gives = for_own && self.next[index].is_none() && !self.nodes[index].is_empty();
            gives || self.done[index] < self.buckets(*replica).len()
        };
        share.others().find(is_missing).map(|replica| share.rank(replica))
    }

    /// How many buckets a replica is known to have taken.
    fn heard(&self, replica: usize) -> usize {
        match self.answers {
            Answers::None => self.added,
            _ => self.done[replica],
        }
    }

    /// Sends an owner this replica's sums of its next buckets.
    fn give<S: Stage>(&mut self, owner: u32, access: &mut ReplicaAccess<'_, S>) -> Result<bool> {
        let index = owner as usize;
        let own = access.share.replica as usize;
        let mut moved = false;
        while !self.nodes[own].is_empty()
            && self.sent[index] < self.buckets(owner).len()
            && self.sent[index] < self.heard(index) + WINDOW
        {
            let mut block = access.block();
            let spans = &self.buckets(owner)[self.sent[index]];
            for node in 0..self.nodes[own].len() {
                access.chunk(self.stage).append_sums(node, spans, &mut block)?;
            }
            access.send(owner, Topic::Sums, self.stage, self.shortened(block))?;
            self.sent[index] += 1;
            if self.answers == Answers::None {
                self.done[index] += 1;
            }
            moved = true;
        }
        Ok(moved)
    }

    /// Takes an owner's answers.
    fn take_answers<S: Stage>(&mut self, owner: u32, access: &mut ReplicaAccess<'_, S>) -> Result<bool> {
        let index = owner as usize;
        let mut moved = false;
        while self.answers != Answers::None
            && self.done[index] < self.buckets(owner).len()
            && let Some(block) = access.poll(owner, Topic::Answer, self.stage)?
        {
            let block = self.lengthened(block);
            if self.answers == Answers::Totals {
                let chunk = access.chunk(self.stage);
                chunk.set_gradients(&self.buckets(owner)[self.done[index]], &block)?;
            }
            access.blocks.push(block);
            self.done[index] += 1;
            moved = true;
        }
        Ok(moved)
    }

    /// Adds up the own buckets for which all replicas' sums have come, and answers.
    fn add_up<S: Stage>(&mut self, access: &mut ReplicaAccess<'_, S>) -> Result<bool> {
        let mut moved = false;
        while self.added < self.buckets(access.share.replica).len() && self.has_given(access.share) {
            for replica in access.share.others() {
                let index = replica as usize;
                if self.next[index].is_none() && !self.nodes[index].is_empty() {
                    match access.poll(replica, Topic::Sums, self.stage)? {
                        Some(part) => self.next[index] = Some(self.lengthened(part)),
                        None => return Ok(moved),
                    }
                }
            }
            let total = self.total(access)?;
            self.answer(total, access)?;
            self.added += 1;
            moved = true;
        }
        Ok(moved)
    }

    /// Whether the next own bucket may become the total: where all add up everything, the others must have
    /// been sent this replica's sums of it.
    fn has_given(&self, share: &ReplicaShare) -> bool {
        let gives = !self.nodes[share.replica as usize].is_empty();
        let was_sent = |replica: u32| self.sent[replica as usize] > self.added;
        self.answers != Answers::None || !gives || share.others().all(was_sent)
    }

    /// The total of the next own bucket. The gradients are set to it too.
    fn total<S: Stage>(&mut self, access: &mut ReplicaAccess<'_, S>) -> Result<Vec<u8>> {
        let own = access.share.replica;
        let spans = match self.answers {
            Answers::None => &self.parts[0][self.added],
            _ => &self.parts[own as usize][self.added],
        };
        let chunk = chunk_of(access.chunks, self.stage);
        let mut adder = Adder::new(chunk, spans, access.blocks, self.are_short);
        for (nodes, part) in self.nodes.iter().zip(&mut self.next) {
            let mut part = part.take();
            for (index, node) in nodes.iter().enumerate() {
                let addend = match &part {
                    None => Addend::Own(index),
                    Some(_) if nodes.len() == 1 => Addend::Block(part.take().expect("it is some")),
                    Some(part) => {
                        let size = part.len() / nodes.len();
                        Addend::Block(adder.copy(&part[index * size..][..size]))
                    }
                };
                self.sums.push(*node, addend, |a, b| adder.sum(a, b));
            }
            adder.blocks.extend(part);
        }
        let total = self.sums.total(|a, b| adder.sum(a, b));
        adder.finish(total.expect("the first replica has a group"))
    }

    /// A block to send.
    fn shortened(&self, mut block: Vec<u8>) -> Vec<u8> {
        if self.are_short {
            shorten_sums(&mut block);
        }
        block
    }

    /// A block that has come.
    fn lengthened(&self, mut block: Vec<u8>) -> Vec<u8> {
        if self.are_short {
            lengthen_sums(&mut block);
        }
        block
    }

    /// Answers the other replicas. `total` is the sum of the next own bucket. The last one gets its memory.
    fn answer<S: Stage>(&self, total: Vec<u8>, access: &mut ReplicaAccess<'_, S>) -> Result<()> {
        let waits = |replica: &u32| match self.answers {
            Answers::Totals => true,
            Answers::Receipts => !self.nodes[*replica as usize].is_empty(),
            Answers::None => false,
        };
        let mut total = Some(self.shortened(total));
        let mut waiting = access.share.others().filter(waits).peekable();
        while let Some(replica) = waiting.next() {
            let is_last = waiting.peek().is_none();
            let whole = total.take_if(|_| self.answers == Answers::Totals && is_last);
            let block = whole.unwrap_or_else(|| {
                let mut block = access.block();
                if self.answers == Answers::Totals {
                    block.extend_from_slice(total.as_deref().unwrap_or_default());
                }
                block
            });
            access.send(replica, Topic::Answer, self.stage, block)?;
        }
        access.blocks.extend(total);
        Ok(())
    }
}
