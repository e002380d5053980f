//! Tied parameters: several layers hold the same weights.

use std::sync::Arc;

use pipewright_stages::{Device, Gradient, Parameter, Part, SharedWeights, Stage};

use super::Worker;
use super::chunk::empty_block;
use super::parameters::{Site, Tie};
use super::progress::WaitsFor;
use crate::error::Result;
use crate::fabric::Tag;
use crate::id::{Rank, StageId, WorldRank};

impl<S: Stage> Worker<S> {
    /// Connects the rank to its partners, and gives tied copies the first site's weights. The stages before
    /// `first_trained` are frozen: they have no backward, and no gradient goes to them.
    ///
    /// # Errors
    /// [`crate::Error::PeerGone`], or whatever the transport reports.
    pub(crate) fn tie(&mut self, ties: Vec<Tie>, first_trained: StageId) -> Result<()> {
        let own_gpu = self.is_on_gpu(self.at.rank);
        let mut partners: Vec<Rank> = ties.iter().flat_map(|tie| tie.partners(self.at.rank)).collect();
        partners.retain(|partner| own_gpu && self.is_on_gpu(*partner));
        let partners: Vec<WorldRank> = partners.into_iter().map(|rank| self.world_rank(rank)).collect();
        self.transport.start(&partners)?;
        self.join(ties, first_trained);
        self.for_each_tie(|worker, tie| {
            let first = tie.sites[0];
            if first.rank == worker.at.rank { worker.spread_weights(tie) } else { worker.take_weights(tie) }
        })?;
        self.follow_leaders(|_| true)
    }

    /// Says what is tied and what is frozen, and joins the other replicas.
    pub(super) fn join(&mut self, ties: Vec<Tie>, first_trained: StageId) {
        self.first_trained = first_trained;
        self.ties = ties.into();
        self.join_replicas();
    }

    /// Where such a tied parameter has several sites on this rank, only the first of them is updated, and the
    /// others get its weights: after the stages were built, and after each update.
    pub(super) fn follow_leaders(&mut self, which: impl Fn(&Tie) -> bool) -> Result<()> {
        self.for_each_tie(|worker, tie| {
            let mut own = tie.on(worker.at.rank);
            let leader = own.next().expect("this rank has a part in it");
            for site in own.filter(|_| which(tie)) {
                let weights = SharedWeights::take(worker.parameter(leader));
                worker.parameter(site).follow(&weights);
                weights.put_back(worker.parameter(leader));
            }
            Ok(())
        })
    }

    /// Sums the gradients of each tied parameter that is trained over its sites: all numbers, or those that
    /// this replica updates. A rank sends one block with the gradients of its sites and receives one with
    /// their sum, so the blocks' memory is used again. Between GPUs that NCCL connects, each gradient is a
    /// wire instead.
    pub(super) fn sum_tied_gradients(&mut self) -> Result<()> {
        self.for_each_tie(|worker, tie| {
            let first = tie.sites[0];
            if !tie.is_trained {
                return Ok(());
            }
            if first.rank == worker.at.rank {
                // It is put back below, unless the rank stops.
                let mut total = Gradient::take(worker.parameter(first))?;
                worker.add_gradients(tie, &mut total)?;
                worker.spread_gradient(tie, &total)?;
                total.put_back(worker.parameter(first));
                return Ok(());
            }
            worker.give_gradients(tie)?;
            worker.take_gradient(tie)
        })
    }

    /// Calls `action` for the tied parameters in which this rank has a part. All ranks use the same order.
    fn for_each_tie(&mut self, mut action: impl FnMut(&mut Self, &Tie) -> Result<()>) -> Result<()> {
        let (ties, rank) = (Arc::clone(&self.ties), self.at.rank);
        let mut mine = ties.iter().filter(|tie| tie.on(rank).next().is_some());
        mine.try_for_each(|tie| action(self, tie))
    }

    /// Adds the gradients of all sites after the first, in layer order.
    fn add_gradients(&mut self, tie: &Tie, total: &mut Gradient) -> Result<()> {
        let start = self.blocks.len();
        for peer in tie.others() {
            let block = if self.hands_over(peer) { Vec::new() } else { self.block_from(peer)? };
            self.blocks.push(block);
        }
        for (index, &site) in tie.sites.iter().enumerate().skip(1) {
            match tie.place(index) {
                None => total.add(self.parameter(site))?,
                Some(_) if self.hands_over(site.rank) => {
                    let more = self.gradient_from(site.rank, gradient_tag(site), tie.sites[0])?;
                    total.add_gradient(&more)?;
                }
                Some((block, place)) => {
                    let owned = self.parameter(tie.sites[0]).owned();
                    let size = size_of::<f32>() * owned.len();
                    let numbers = &self.blocks[start + block][place * size..][..size];
                    total.add_numbers(owned.start, numbers)?;
                }
            }
        }
        self.blocks.retain(|block| block.capacity() > 0);
        Ok(())
    }

    /// Sends the summed gradient to the ranks of all other sites. Followers need none.
    fn spread_gradient(&mut self, tie: &Tie, total: &Gradient) -> Result<()> {
        let first = tie.sites[0];
        for peer in tie.others() {
            if self.hands_over(peer) {
                let wire = self.chunk(first.stage).stage.wire_of(total.packed()?)?;
                self.send_wire(peer, sum_tag(first), wire)?;
                continue;
            }
            let mut block = empty_block(&mut self.blocks);
            total.append_to(self.parameter(first).owned(), &mut block)?;
            self.send_block(peer, block)?;
        }
        Ok(())
    }

    /// Sends the gradients of this rank's sites to the first site's rank.
    fn give_gradients(&mut self, tie: &Tie) -> Result<()> {
        let to = tie.sites[0].rank;
        let handed = self.hands_over(to);
        let mut block = if handed { Vec::new() } else { empty_block(&mut self.blocks) };
        for site in tie.on(self.at.rank) {
            let owned = self.parameter(site).owned();
            let gradient = Gradient::take(self.parameter(site))?;
            if handed {
                let wire = self.chunk(site.stage).stage.wire_of(gradient.packed()?)?;
                self.send_wire(to, gradient_tag(site), wire)?;
            } else {
                gradient.append_to(owned, &mut block)?;
            }
            gradient.put_back(self.parameter(site));
        }
        if handed {
            return Ok(());
        }
        self.send_block(to, block)
    }

    /// Whether gradients go to this rank as wires, from GPU to GPU.
    fn hands_over(&self, peer: Rank) -> bool {
        self.is_on_gpu(self.at.rank)
            && self.is_on_gpu(peer)
            && self.transport.is_direct(self.world_rank(peer))
    }

    fn is_on_gpu(&self, rank: Rank) -> bool {
        self.plan.mesh.place(self.world_rank(rank)).device != Device::Cpu
    }

    /// A gradient from another rank, on the device of this rank's site.
    fn gradient_from(&mut self, rank: Rank, tag: Tag, site: Site) -> Result<Gradient> {
        let (peer, transport) = (self.world_rank(rank), &mut self.transport);
        let wire = self.meter.wait(WaitsFor::Rank(peer), || transport.wait(peer, tag))?;
        Ok(Gradient::of(self.chunk(site.stage).stage.packed_of(wire)?)?)
    }

    /// Takes the sum, for the site that is updated on this rank.
    fn take_gradient(&mut self, tie: &Tie) -> Result<()> {
        let first = tie.sites[0];
        let leader = tie.on(self.at.rank).next().expect("a rank has a part in what it is asked for");
        if self.hands_over(first.rank) {
            let total = self.gradient_from(first.rank, sum_tag(first), leader)?;
            return Ok(total.copy_to(self.parameter(leader))?);
        }
        let block = self.block_from(first.rank)?;
        let parameter = self.parameter(leader);
        parameter.set_grad(parameter.owned().start, &block)?;
        self.blocks.push(block);
        Ok(())
    }

    /// Sends the first site's weights to all other sites.
    fn spread_weights(&mut self, tie: &Tie) -> Result<()> {
        let first = self.parameter(tie.sites[0]);
        first.fetch(Part::Value)?;
        // They are put back below, unless the rank stops.
        let weights = std::mem::take(&mut first.value);
        let bytes: &[u8] = bytemuck::cast_slice(&weights);
        for site in tie.on(self.at.rank).skip(1) {
            set_weights(self.parameter(site), bytes)?;
        }
        for peer in tie.others() {
            self.send_block(peer, bytes.to_vec())?;
        }
        self.parameter(tie.sites[0]).value = weights;
        Ok(())
    }

    fn take_weights(&mut self, tie: &Tie) -> Result<()> {
        let weights = self.block_from(tie.sites[0].rank)?;
        for site in tie.on(self.at.rank) {
            set_weights(self.parameter(site), &weights)?;
        }
        Ok(())
    }

    fn block_from(&mut self, rank: Rank) -> Result<Vec<u8>> {
        let (peer, transport) = (self.world_rank(rank), &mut self.transport);
        self.meter.wait(WaitsFor::Rank(peer), || transport.recv_bytes(peer, Tag(0)))
    }

    fn parameter(&mut self, site: Site) -> &mut Parameter {
        self.chunk(site.stage).parameter(site.index)
    }
}

/// The tag of a site's gradient. It differs from the tags of all passes' wires.
fn gradient_tag(site: Site) -> Tag {
    Tag(1 << 62 | u64::from(site.stage.0) << 32 | site.index as u64)
}

/// The tag of the sum that the first site's rank sends back.
fn sum_tag(first: Site) -> Tag {
    Tag(gradient_tag(first).0 | 1 << 61)
}

fn set_weights(parameter: &mut Parameter, bytes: &[u8]) -> Result<()> {
    // Weights of a file are equal already. They may be lent, and are copied if they are changed.
    if bytemuck::cast_slice::<f32, u8>(&parameter.value) != bytes {
        bytemuck::cast_slice_mut(&mut parameter.value[..]).copy_from_slice(bytes);
    }
    Ok(parameter.store(Part::Value)?)
}
