//! Sums over replicas that stay on GPUs, and new weights that go from GPU to GPU.
//!
//! Owners, answers and the order of addition are the same as in [`Reduction`]. Instead of blocks of the host,
//! wires go from GPU to GPU, and the GPU adds. The host queues all of this; it waits only until another rank
//! of its process has queued its part.
//!
//! All ranks with the same stages go through the same *rounds* in the same order: in round `n` each owner's
//! bucket `n` travels. So all know what comes, and in which order.

use pipewright_stages::{DType, Packed, Parameter, Result as StageResult, Shape, Stage};

use super::access::{ReplicaAccess, Topic, WINDOW};
use super::reduction::Reduction;
use super::share::ReplicaShare;
use super::slices::{Span, length_of};
use crate::error::Result;
use crate::fabric::{Tag, Taken};
use crate::groups::Sums;
use crate::id::{StageId, WorldRank};
use crate::worker::chunk::{Chunk, visit_spans};
use crate::worker::plan::Plan;
use crate::worker::progress::WaitsFor;

/// The numbers of a bucket: 4 MiB. A bucket costs some kernels for each parameter in it and a transfer to
/// each replica, whose starts take the same time for any size. So a bucket is much larger than on the host,
/// and [`WINDOW`] buckets are still little beside the gradients.
pub(in crate::worker) const BUCKET: usize = 1 << 20;

/// The sums of a rank's stages over their replicas.
#[derive(Debug)]
pub(in crate::worker) struct GpuSums {
    reductions: Vec<Reduction>,
    /// Whether all replicas have the same schedule.
    is_alike: bool,
}

impl GpuSums {
    pub(in crate::worker) fn new<S: Stage>(plan: &Plan, share: &ReplicaShare, chunks: &[Chunk<S>]) -> Self {
        Self {
            reductions: Reduction::of_all(plan, share, chunks),
            is_alike: plan.schedules.windows(2).all(|pair| pair[0] == pair[1]),
        }
    }

    /// A stage's gradients are complete. Its first buckets are sent now if all replicas have the same lists,
    /// so that they get there in the same order. Otherwise the sum begins at the end of the step.
    pub(super) fn begin<S: Stage>(
        &mut self,
        stage: StageId,
        access: &mut ReplicaAccess<'_, S>,
    ) -> Result<()> {
        let place = |of: &Reduction| of.stage() == stage;
        match self.reductions.iter().position(place) {
            Some(index) if self.is_alike => self.start(index, access),
            _ => Ok(()),
        }
    }

    fn start<S: Stage>(&mut self, index: usize, access: &mut ReplicaAccess<'_, S>) -> Result<()> {
        self.reductions[index].start(access.share);
        access.meter.sum_starts(self.reductions[index].stage())?;
        let mut trade = self.trade(index, access);
        (0..trade.rounds().min(WINDOW)).try_for_each(|round| trade.give_sums(round))
    }

    /// Queues all that is missing of the sums, stage by stage.
    pub(super) fn finish<S: Stage>(&mut self, access: &mut ReplicaAccess<'_, S>) -> Result<()> {
        let since = access.meter.begin_sums()?;
        for index in 0..self.reductions.len() {
            if !self.reductions[index].is_active() {
                self.start(index, access)?;
            }
            self.trade(index, access).finish()?;
            self.reductions[index].end();
            let stage = self.reductions[index].stage();
            let chunk = access.chunk(stage);
            chunk.forget_sums();
            access.meter.sum_ends(stage)?;
        }
        access.meter.end_sums(since)
    }

    /// Queues the exchange of all stages' new weights, and waits for it. So when a step ends, nothing is on
    /// the way that the end of a run would cut off.
    pub(super) fn exchange_weights<S: Stage>(&self, access: &mut ReplicaAccess<'_, S>) -> Result<()> {
        let since = access.meter.begin_sums()?;
        for index in 0..self.reductions.len() {
            self.trade(index, access).exchange_weights()?;
        }
        access.transport.await_trades()?;
        access.meter.end_sums(since)?;
        access.await_devices()
    }

    /// One stage's part.
    fn trade<'a, 'b, S: Stage>(
        &'a self,
        index: usize,
        access: &'a mut ReplicaAccess<'b, S>,
    ) -> Trade<'a, 'b, S> {
        Trade { reduction: &self.reductions[index], access }
    }
}

/// What a stage's rounds need.
struct Trade<'a, 'b, S: Stage> {
    reduction: &'a Reduction,
    access: &'a mut ReplicaAccess<'b, S>,
}

impl<S: Stage> Trade<'_, '_, S> {
    fn chunk(&mut self) -> &mut Chunk<S> {
        self.access.chunk(self.reduction.stage())
    }

    /// How many rounds there are: the most buckets of an owner.
    fn rounds(&self) -> usize {
        let buckets = |owner| self.reduction.buckets(owner).len();
        (0..self.access.share.replicas()).map(buckets).max().unwrap_or(0)
    }

    /// An owner's bucket of a round. Those with fewer buckets have none in the last rounds.
    fn bucket(&self, owner: u32, round: usize) -> Option<&'_ [Span]> {
        self.reduction.buckets(owner).get(round).map(Vec::as_slice)
    }

    /// How many sums a replica makes.
    fn sums(&self, replica: u32) -> usize {
        self.reduction.nodes(replica).len()
    }

    /// Does what is left of the rounds: this rank has given its sums of the first [`WINDOW`] buckets.
    fn finish(&mut self) -> Result<()> {
        let rounds = self.rounds();
        for round in 0..rounds {
            if round + WINDOW < rounds {
                self.give_sums(round + WINDOW)?;
            }
            self.add_up(round)?;
            if let Some(before) = round.checked_sub(1) {
                self.take_totals(before)?;
            }
        }
        rounds.checked_sub(1).map_or(Ok(()), |last| self.take_totals(last))
    }

    /// Sends all owners this replica's sums of their bucket, and announces the others' of the own one.
    fn give_sums(&mut self, round: usize) -> Result<()> {
        let (own, reduction) = (self.access.share.replica, self.reduction);
        let sums = self.sums(own);
        let mut given = Vec::new();
        for owner in self.access.share.others().filter(|_| sums > 0) {
            if let Some(spans) = reduction.buckets(owner).get(round) {
                let packed = self.pack_sums(sums, spans)?;
                given.push((self.access.share.rank(owner), self.chunk().stage.wire_of(packed)?));
            }
        }
        let count = self.bucket(own, round).map_or(0, length_of);
        let taken =
            (self.access.share.others()).map(|from| (self.access.share.rank(from), self.sums(from) * count));
        let taken: Vec<_> = taken.filter(|(_, count)| *count > 0).map(numbers_from).collect();
        self.access.transport.trade(self.tag(Topic::Sums, round), given, &taken)
    }

    /// Adds up the own bucket by the tree, and sends the others its total where they need it.
    fn add_up(&mut self, round: usize) -> Result<()> {
        let (own, reduction) = (self.access.share.replica, self.reduction);
        let Some(spans) = reduction.buckets(own).get(round) else {
            return self.give_own(Topic::Answer, round, None);
        };
        let count = length_of(spans);
        let (mut sums, mut added) = (Sums::default(), Ok(()));
        let mut add = |mut earlier: Packed, later: Packed| {
            if added.is_ok() {
                added = earlier.add(&later);
            }
            earlier
        };
        for replica in 0..self.access.share.replicas() {
            let nodes = reduction.nodes(replica);
            let part = match replica {
                _ if nodes.is_empty() => continue,
                _ if replica == own => self.pack_sums(nodes.len(), spans)?,
                _ => self.take(replica, Topic::Sums, round)?,
            };
            for (place, node) in nodes.iter().enumerate() {
                sums.push(*node, part.part(place * count..(place + 1) * count), &mut add);
            }
        }
        let total = sums.total(&mut add).expect("the first replica has a group");
        added?;
        self.chunk().unpack_gradients(spans, &total)?;
        self.give_own(Topic::Answer, round, Some(&total))
    }

    /// Sets the gradients of the other owners' buckets to their totals.
    fn take_totals(&mut self, round: usize) -> Result<()> {
        let reduction = self.reduction;
        for owner in self.access.share.others().filter(|_| reduction.has_totals()) {
            if let Some(spans) = reduction.buckets(owner).get(round) {
                let total = self.take(owner, Topic::Answer, round)?;
                self.chunk().unpack_gradients(spans, &total)?;
            }
        }
        Ok(())
    }

    /// Sends the weights that this replica has updated to all others, and takes theirs.
    fn exchange_weights(&mut self) -> Result<()> {
        let rounds = self.rounds();
        for round in 0..rounds + WINDOW {
            if round < rounds {
                let spans = self.reduction.buckets(self.access.share.replica).get(round);
                let packed = spans.map(|spans| self.pack_weights(spans));
                self.give_own(Topic::Weights, round, packed.transpose()?.as_ref())?;
            }
            let Some(round) = round.checked_sub(WINDOW) else {
                continue;
            };
            for owner in self.access.share.others() {
                if let Some(spans) = self.reduction.buckets(owner).get(round) {
                    let packed = self.take(owner, Topic::Weights, round)?;
                    self.chunk().unpack_weights(spans, &packed)?;
                }
            }
        }
        Ok(())
    }

    /// Sends all others these numbers of the own bucket, and announces theirs.
    fn give_own(&mut self, topic: Topic, round: usize, packed: Option<&Packed>) -> Result<()> {
        if topic == Topic::Answer && !self.reduction.has_totals() {
            return Ok(());
        }
        let (mut given, mut taken): (Vec<(WorldRank, S::Wire)>, _) = (Vec::new(), Vec::new());
        for other in self.access.share.others() {
            let rank = self.access.share.rank(other);
            if let Some(packed) = packed {
                given.push((rank, self.chunk().stage.wire_of(packed.copied()?)?));
            }
            if let Some(spans) = self.bucket(other, round) {
                taken.push(numbers_from((rank, length_of(spans))));
            }
        }
        self.access.transport.trade(self.tag(topic, round), given, &taken)
    }

    /// What a replica has sent.
    fn take(&mut self, replica: u32, topic: Topic, round: usize) -> Result<Packed> {
        let (peer, tag) = (self.access.share.rank(replica), self.tag(topic, round));
        let transport = &mut self.access.transport;
        let wait = || transport.wait(peer, tag);
        let wire = self.access.meter.wait(WaitsFor::Rank(peer), wait)?;
        Ok(self.chunk().stage.packed_of(wire)?)
    }

    /// The tag of a round's wires. It differs from the tags of all passes' wires and of tied gradients.
    fn tag(&self, topic: Topic, round: usize) -> Tag {
        let stage = u64::from(self.reduction.stage().0);
        Tag(1 << 60 | (topic as u64) << 56 | stage << 24 | round as u64)
    }

    /// The replica's first `sums` sums of these numbers, one after the other.
    fn pack_sums(&mut self, sums: usize, spans: &[Span]) -> Result<Packed> {
        let count = length_of(spans);
        let packed = Packed::new(self.access.device(), sums * count)?;
        for sum in 0..sums {
            let one = packed.part(sum * count..(sum + 1) * count);
            self.chunk().each_part(spans, &one, |parameter, start, mut part| {
                parameter.pack_sum(sum, start, &mut part)
            })?;
        }
        Ok(packed)
    }

    /// These weights.
    fn pack_weights(&mut self, spans: &[Span]) -> Result<Packed> {
        let packed = Packed::new(self.access.device(), length_of(spans))?;
        self.chunk()
            .each_part(spans, &packed, |parameter, start, mut part| parameter.pack_value(start, &mut part))?;
        Ok(packed)
    }
}

/// What is taken from a rank: so many numbers of `f32`.
fn numbers_from((from, count): (WorldRank, usize)) -> Taken {
    (from, Shape::f32(&[count]), DType::F32)
}

impl<S: Stage> Chunk<S> {
    /// Sets these numbers of the gradients.
    fn unpack_gradients(&mut self, spans: &[Span], packed: &Packed) -> Result<()> {
        self.each_part(spans, packed, |parameter, start, part| parameter.unpack_grad(start, &part))
    }

    /// Sets these weights, after the stage's own update.
    fn unpack_weights(&mut self, spans: &[Span], packed: &Packed) -> Result<()> {
        self.each_part(spans, packed, |parameter, start, part| parameter.unpack_value(start, &part))
    }

    /// Calls `act` for each span: with its parameter, its first number, and its part of `packed`.
    fn each_part(
        &mut self,
        spans: &[Span],
        packed: &Packed,
        act: impl Fn(&mut Parameter, usize, Packed) -> StageResult<()>,
    ) -> Result<()> {
        let mut at = 0;
        visit_spans(&mut self.stage, spans, |parameter, range| {
            let part = packed.part(at..at + range.len());
            at += range.len();
            Ok(act(parameter, range.start, part)?)
        })
    }
}
