//! Sums over replicas that stay on GPUs, and new weights that go from GPU to GPU.
//!
//! Owners, answers and the order of addition are the same as in [`Reduction`]. Instead of blocks of the host,
//! wires go from GPU to GPU, and the GPU adds. The host queues all of this; it waits only until another rank
//! of its process has queued its part.
//!
//! All ranks with the same stages go through the same *rounds* in the same order: in round `n` each owner's
//! bucket `n` travels. So all know what comes, and in which order.

use pipewright_stages::{Device, Packed, Stage};

use super::Worker;
use super::chunk::{Chunk, chunk_of};
use super::meter::Meter;
use super::progress::WaitsFor;
use super::reduction::{Reduction, Topic, WINDOW};
use super::share::Share;
use super::slices::{Span, length_of};
use crate::error::Result;
use crate::fabric::{Tag, Transport};
use crate::groups::Sums;
use crate::id::{StageId, WorldRank};

/// The numbers of a bucket: 4 MiB. A bucket costs some kernels for each parameter in it and a transfer to
/// each replica, whose starts take the same time for any size. So a bucket is much larger than on the host,
/// and [`WINDOW`] buckets are still little beside the gradients.
pub(super) const BUCKET: usize = 1 << 20;

impl<S: Stage> Worker<S> {
    /// Whether sums over this rank's replicas can stay on GPUs: all of the group say the same.
    pub(super) fn can_stay_on_gpus(&self) -> bool {
        let own = self.share.replica;
        (0..self.share.replicas()).all(|replica| {
            let rank = self.share.rank(replica);
            let is_on_gpu = self.mesh.place(rank).device != Device::Cpu;
            is_on_gpu && (replica == own || self.transport.is_direct(rank))
        })
    }

    /// A stage's gradients are complete. Its first buckets are sent now if all replicas have the same lists,
    /// so that they get there in the same order. Otherwise the sum begins at the end of the step.
    pub(super) fn begin_on_gpus(&mut self, stage: StageId) -> Result<()> {
        let place = |of: &Reduction| of.stage() == stage;
        match self.reductions.iter().position(place) {
            Some(index) if self.alike => self.start_on_gpus(index),
            _ => Ok(()),
        }
    }

    fn start_on_gpus(&mut self, index: usize) -> Result<()> {
        self.reductions[index].start(&self.share);
        self.meter.sum_starts(self.reductions[index].stage())?;
        let mut trade = self.trade(index);
        (0..trade.rounds().min(WINDOW)).try_for_each(|round| trade.give_sums(round))
    }

    /// Queues all that is missing of the sums, stage by stage.
    pub(super) fn finish_on_gpus(&mut self) -> Result<()> {
        let since = self.meter.begin_sums()?;
        for index in 0..self.reductions.len() {
            if !self.reductions[index].is_active() {
                self.start_on_gpus(index)?;
            }
            self.trade(index).finish()?;
            self.reductions[index].end();
            let stage = self.reductions[index].stage();
            let chunk = chunk_of(&mut self.chunks, stage);
            chunk.partials.clear(&mut chunk.stage);
            self.meter.sum_ends(stage)?;
        }
        self.meter.end_sums(since)
    }

    /// Queues the exchange of all stages' new weights, and waits for it. So when a step ends, nothing is on
    /// the way that the end of a run would cut off.
    pub(super) fn exchange_weights_on_gpus(&mut self) -> Result<()> {
        let since = self.meter.begin_sums()?;
        for index in 0..self.reductions.len() {
            self.trade(index).exchange_weights()?;
        }
        self.transport.await_trades()?;
        self.meter.end_sums(since)?;
        self.await_devices()
    }

    /// One stage's part.
    fn trade(&mut self, index: usize) -> Trade<'_, S> {
        let device = self.mesh.place(self.world_rank(self.rank)).device;
        let reduction = &self.reductions[index];
        Trade {
            chunk: chunk_of(&mut self.chunks, reduction.stage()),
            reduction,
            share: &self.share,
            transport: self.transport.as_mut(),
            meter: &mut self.meter,
            device,
        }
    }
}

/// What a stage's rounds need.
struct Trade<'a, S: Stage> {
    chunk: &'a mut Chunk<S>,
    reduction: &'a Reduction,
    share: &'a Share,
    transport: &'a mut dyn Transport<S::Wire>,
    meter: &'a mut Meter,
    device: Device,
}

impl<S: Stage> Trade<'_, S> {
    /// How many rounds there are: the most buckets of an owner.
    fn rounds(&self) -> usize {
        let buckets = |owner| self.reduction.buckets(owner).len();
        (0..self.share.replicas()).map(buckets).max().unwrap_or(0)
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
        rounds
            .checked_sub(1)
            .map_or(Ok(()), |last| self.take_totals(last))
    }

    /// Sends all owners this replica's sums of their bucket, and announces the others' of the own one.
    fn give_sums(&mut self, round: usize) -> Result<()> {
        let (own, reduction) = (self.share.replica, self.reduction);
        let sums = self.sums(own);
        let mut given = Vec::new();
        for owner in self.share.others().filter(|_| sums > 0) {
            if let Some(spans) = reduction.buckets(owner).get(round) {
                let packed = self.chunk.pack_sums(sums, spans, self.device)?;
                given.push((self.share.rank(owner), self.chunk.stage.wire_of(packed)?));
            }
        }
        let count = self.bucket(own, round).map_or(0, length_of);
        let taken = (self.share.others()).map(|from| (self.share.rank(from), self.sums(from) * count));
        let taken: Vec<_> = taken.filter(|(_, count)| *count > 0).collect();
        self.transport.trade(self.tag(Topic::Sums, round), given, &taken)
    }

    /// Adds up the own bucket by the tree, and sends the others its total where they need it.
    fn add_up(&mut self, round: usize) -> Result<()> {
        let (own, reduction) = (self.share.replica, self.reduction);
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
        for replica in 0..self.share.replicas() {
            let nodes = reduction.nodes(replica);
            let part = match replica {
                _ if nodes.is_empty() => continue,
                _ if replica == own => self.chunk.pack_sums(nodes.len(), spans, self.device)?,
                _ => self.take(replica, Topic::Sums, round)?,
            };
            for (place, node) in nodes.iter().enumerate() {
                sums.push(*node, part.part(place * count..(place + 1) * count), &mut add);
            }
        }
        let total = sums.total(&mut add).expect("the first replica has a group");
        added?;
        self.chunk.unpack_gradients(spans, &total)?;
        self.give_own(Topic::Answer, round, Some(&total))
    }

    /// Sets the gradients of the other owners' buckets to their totals.
    fn take_totals(&mut self, round: usize) -> Result<()> {
        let reduction = self.reduction;
        for owner in self.share.others().filter(|_| reduction.has_totals()) {
            if let Some(spans) = reduction.buckets(owner).get(round) {
                let total = self.take(owner, Topic::Answer, round)?;
                self.chunk.unpack_gradients(spans, &total)?;
            }
        }
        Ok(())
    }

    /// Sends the weights that this replica has updated to all others, and takes theirs.
    fn exchange_weights(&mut self) -> Result<()> {
        let rounds = self.rounds();
        for round in 0..rounds + WINDOW {
            if round < rounds {
                let spans = self.reduction.buckets(self.share.replica).get(round);
                let packed = spans.map(|spans| self.chunk.pack_weights(spans, self.device));
                self.give_own(Topic::Weights, round, packed.transpose()?.as_ref())?;
            }
            let Some(round) = round.checked_sub(WINDOW) else {
                continue;
            };
            for owner in self.share.others() {
                if let Some(spans) = self.reduction.buckets(owner).get(round) {
                    let packed = self.take(owner, Topic::Weights, round)?;
                    self.chunk.unpack_weights(spans, &packed)?;
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
        for other in self.share.others() {
            let rank = self.share.rank(other);
            if let Some(packed) = packed {
                given.push((rank, self.chunk.stage.wire_of(packed.copied()?)?));
            }
            if let Some(spans) = self.bucket(other, round) {
                taken.push((rank, length_of(spans)));
            }
        }
        self.transport.trade(self.tag(topic, round), given, &taken)
    }

    /// What a replica has sent.
    fn take(&mut self, replica: u32, topic: Topic, round: usize) -> Result<Packed> {
        let (peer, tag) = (self.share.rank(replica), self.tag(topic, round));
        let transport = &mut self.transport;
        let wire = self
            .meter
            .wait(WaitsFor::Rank(peer), || transport.wait(peer, tag))?;
        Ok(self.chunk.stage.packed_of(wire)?)
    }

    /// The tag of a round's wires. It differs from the tags of all passes' wires and of tied gradients.
    fn tag(&self, topic: Topic, round: usize) -> Tag {
        let stage = u64::from(self.reduction.stage().0);
        Tag(1 << 60 | (topic as u64) << 56 | stage << 24 | round as u64)
    }
}
