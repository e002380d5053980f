//! What a rank does together with the ranks that hold the same stages in other replicas.

use std::time::Instant;

use pipewright_stages::{Device, Stage};

use super::Worker;
use super::chunk::chunk_of;
use super::on_gpus;
use super::parameters::Site;
use super::progress::WaitsFor;
use super::reduction::{Reach, Reduction};
use super::slices::Slices;
use crate::error::Result;
use crate::fabric::Tag;
use crate::id::{StageId, WorldRank};

impl<S: Stage> Worker<S> {
    /// Says which replica adds up which gradients and, with a sharded optimizer, updates which weights. The
    /// copies of a tied parameter are divided alike.
    pub(super) fn divide_among_replicas(&mut self) {
        if self.share.replicas() == 1 {
            return;
        }
        self.on_gpus = self.can_stay_on_gpus();
        for chunk in &mut self.chunks {
            let first = |index| {
                let is_here = |site: &Site| (site.stage, site.index) == (chunk.id, index);
                let tie = self.ties.iter().find(|tie| tie.sites.iter().any(is_here));
                tie.map(|tie| tie.sites[0].index)
            };
            let mut parameters = Vec::new();
            chunk.stage.visit_gradients(&mut |parameter| {
                parameters.push((parameter.trained(), first(parameters.len())))
            });
            let mut slices = Slices::new(parameters.into_iter(), self.share.replicas());
            if self.on_gpus {
                slices = slices.in_buckets_of(on_gpus::BUCKET);
            }
            let mut index = 0;
            chunk.stage.visit_gradients(&mut |parameter| {
                if self.sharded {
                    parameter.own(slices.owned(index, self.share.replica));
                }
                index += 1;
            });
            let reduction = Reduction::new(chunk.id, slices, &self.share, self.sharded);
            self.reductions.push(reduction);
        }
    }

    /// Starts the sum of a stage's gradients over its replicas. The first blocks are sent at once.
    pub(super) fn start_reduction(&mut self, stage: StageId) -> Result<()> {
        if self.server.is_some() {
            return self.push_sums(stage);
        }
        if self.on_gpus {
            return self.begin_on_gpus(stage);
        }
        let mut reductions = self.reductions.iter_mut();
        if let Some(reduction) = reductions.find(|reduction| reduction.stage() == stage) {
            reduction.start(&self.share);
            self.meter.reduction_starts(stage);
            let since = Instant::now();
            self.progress_reductions()?;
            self.meter.reduced(since.elapsed());
        }
        Ok(())
    }

    /// Whether sums over replicas are under way.
    fn is_reducing(&self) -> bool {
        self.reductions.iter().any(Reduction::is_active)
    }

    /// Continues all sums over replicas, without waiting. Returns whether it did anything.
    fn progress_reductions(&mut self) -> Result<bool> {
        let mut moved = false;
        let mut reach = Reach {
            share: &self.share,
            transport: self.transport.as_mut(),
            blocks: &mut self.blocks,
        };
        for reduction in self
            .reductions
            .iter_mut()
            .filter(|reduction| reduction.is_active())
        {
            let chunk = chunk_of(&mut self.chunks, reduction.stage());
            moved |= reduction.progress(chunk, &mut reach)?;
            if !reduction.is_active() {
                self.meter.reduction_ends(reduction.stage());
            }
        }
        Ok(moved)
    }

    /// A wire, if it comes while sums over replicas are under way, or while weights may be stale: until then
    /// the rank continues with these.
    pub(super) fn reduce_until(&mut self, peer: WorldRank, tag: Tag) -> Result<Option<S::Wire>> {
        // On a GPU, an end may be unable to see whether a wire has come.
        let can_see = self.mesh.place(self.world_rank(self.rank)).device == Device::Cpu;
        while can_see && (self.is_reducing() || self.server.is_some()) {
            if let Some(wire) = self.transport.poll(peer, tag)? {
                return Ok(Some(wire));
            }
            let moved = match self.server {
                Some(_) => self.serve()?,
                None => self.progress_reductions()?,
            };
            if !moved {
                let transport = &mut self.transport;
                self.meter.wait(WaitsFor::Rank(peer), || transport.listen())?;
            }
        }
        Ok(None)
    }

    /// Waits until all sums over replicas are there.
    pub(super) fn finish_reductions(&mut self) -> Result<()> {
        if self.on_gpus {
            return self.finish_on_gpus();
        }
        let since = Instant::now();
        if !self.is_reducing() {
            return Ok(());
        }
        while self.is_reducing() {
            if !self.progress_reductions()? {
                self.await_replicas()?;
            }
        }
        self.meter.reduced(since.elapsed());
        Ok(())
    }

    /// Waits until something arrives that a sum over replicas may need.
    fn await_replicas(&mut self) -> Result<()> {
        let awaited = self
            .reductions
            .iter()
            .find(|reduction| reduction.is_active())
            .and_then(|reduction| reduction.awaited(&self.share));
        let transport = &mut self.transport;
        let waits = awaited.map_or(WaitsFor::Nobody, WaitsFor::Rank);
        self.meter.wait(waits, || transport.listen())
    }
}
