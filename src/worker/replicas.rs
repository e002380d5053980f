//! What a rank does together with the ranks that hold the same stages in other replicas.

use std::time::Instant;

use pipewright_stages::{Device, Stage};

use super::Worker;
use super::progress::WaitsFor;
use super::reduction::Reach;
use crate::error::Result;
use crate::fabric::Tag;
use crate::id::{StageId, WorldRank};

impl<S: Stage> Worker<S> {
    /// Starts the sum of a stage's gradients over its replicas. The first blocks are sent at once.
    pub(super) fn start_reduction(&mut self, stage: StageId) -> Result<()> {
        let share = &self.share;
        let chunk = self.chunks.iter_mut().find(|chunk| chunk.id == stage);
        let chunk = chunk.expect("checked: the stage is on this rank");
        if let Some(reduction) = &mut chunk.reduction {
            reduction.start(share);
            self.meter.reduction_starts(stage);
            self.progress_reductions()?;
        }
        Ok(())
    }

    /// Whether sums over replicas are under way.
    fn is_reducing(&self) -> bool {
        let mut reductions = self.chunks.iter().filter_map(|chunk| chunk.reduction.as_ref());
        reductions.any(|reduction| reduction.is_active())
    }

    /// Continues all sums over replicas, without waiting. Returns whether it did anything.
    fn progress_reductions(&mut self) -> Result<bool> {
        let mut moved = false;
        let mut reach = Reach {
            share: &self.share,
            transport: self.transport.as_mut(),
            blocks: &mut self.blocks,
        };
        for chunk in &mut self.chunks {
            let Some(mut reduction) = chunk.reduction.take_if(|reduction| reduction.is_active()) else {
                continue;
            };
            let progress = reduction.progress(chunk, &mut reach);
            if !reduction.is_active() {
                self.meter.reduction_ends(chunk.id);
            }
            chunk.reduction = Some(reduction);
            moved |= progress?;
        }
        Ok(moved)
    }

    /// A wire, if it comes while sums over replicas are under way: until then the rank continues these.
    pub(super) fn reduce_until(&mut self, peer: WorldRank, tag: Tag) -> Result<Option<S::Wire>> {
        // On a GPU, an end may be unable to see whether a wire has come.
        let can_see = self.mesh.place(self.world_rank(self.rank)).device == Device::Cpu;
        while can_see && self.is_reducing() {
            if let Some(wire) = self.transport.poll(peer, tag)? {
                return Ok(Some(wire));
            }
            if !self.progress_reductions()? {
                let transport = &mut self.transport;
                self.meter.wait(WaitsFor::Rank(peer), || transport.listen())?;
            }
        }
        Ok(None)
    }

    /// Waits until all sums over replicas are there.
    pub(super) fn finish_reductions(&mut self) -> Result<()> {
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
        let mut reductions = self.chunks.iter().filter_map(|chunk| chunk.reduction.as_ref());
        let awaited = reductions
            .find(|reduction| reduction.is_active())
            .and_then(|reduction| reduction.awaited(&self.share));
        let transport = &mut self.transport;
        let waits = awaited.map_or(WaitsFor::Nobody, WaitsFor::Rank);
        self.meter.wait(waits, || transport.listen())
    }
}
