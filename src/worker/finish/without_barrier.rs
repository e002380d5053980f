//! Steps without a barrier: a rank updates its weights as soon as its own gradients are there, and begins
//! the next step while other ranks still finish this one. At the end of the next step it hears whether the
//! update was right. If the gradient had to be clipped, or a number is not finite, it was wrong. Then all
//! ranks take back both steps, and run them again.
//!
//! Qi et al., "Zero bubble pipeline parallelism" (2023), section 4: post-validation of the optimizer's step.
//! There, norms are added up along the pipeline. Here each rank tells all others its squares, so that they
//! are added in the order of parameters, as in steps with a barrier.

use std::sync::Arc;

use pipewright_stages::Stage;

use super::agreement::{Ending, StepOutcome, StepTotals};
use super::open_step::Kept;
use crate::error::Result;
use crate::fabric::Tag;
use crate::id::WorldRank;
use crate::mesh::Coordinate;
use crate::worker::Worker;
use crate::worker::chunk::empty_block;
use crate::worker::execution::{Execution, StepRequest};
use crate::worker::interpreter::Trained;
use crate::worker::partials::visit;
use crate::worker::progress::WaitsFor;

/// The losses of a step, from the ranks of the last stage to all. No other block has this tag.
const LOSSES: Tag = Tag(1 << 59);
/// What a rank tells all others of the step before.
const STEP_BEFORE: Tag = Tag(1 << 59 | 1);

impl<S: Stage> Worker<S> {
    /// Runs a step that may begin before the other ranks have finished the step before.
    pub(in crate::worker) fn train_without_barrier(&mut self, request: StepRequest) -> Result<Trained> {
        let trained = self.run_step(request, None, None)?;
        let Some(((step, learning_rate), outcome)) = self.open_step.taken_back.take() else {
            return Ok(trained);
        };
        if matches!(outcome, StepOutcome::NotFinite(_)) {
            // The caller is told of the step before, and needs no answer of this one.
            return Ok(trained);
        }
        let data = Arc::clone(&self.plan.data);
        let before = StepRequest { step, learning_rate, goes_on: false, ..request };
        self.run_step(before, Some(&*data), Some(outcome))?;
        self.run_step(request, Some(&*data), None)
    }

    /// Tells all ranks what this rank has of the step before, if they have not agreed on it.
    pub(in crate::worker) fn tell_step_before(&mut self) -> Result<()> {
        match self.open_step.open {
            Some(_) => self.tell_all(STEP_BEFORE, |worker| worker.agreement.told()),
            None => Ok(()),
        }
    }

    /// The rank has one more loss of the step. When it has all of its replica, it tells them to all ranks,
    /// which divide by the weight of the batch.
    pub(in crate::worker) fn count_loss(&mut self, run: &mut Execution<'_>) -> Result<()> {
        run.losses += 1;
        if !run.goes_on || self.at.shard > 0 || run.losses < self.scores.len() {
            return Ok(());
        }
        self.await_devices()?;
        let mut losses = std::mem::take(&mut self.open_step.losses);
        losses.begin();
        self.tell_scores(&mut losses);
        self.open_step.losses = losses;
        self.tell_all(LOSSES, |worker| worker.open_step.losses.told())
    }

    /// Takes the losses of the batch from the ranks of the last stage. A replica without micro-batches has
    /// none.
    pub(in crate::worker) fn hear_losses(&mut self) -> Result<()> {
        let rank = self.schedule.rank_of(self.schedule.last_stage());
        let mut losses = std::mem::take(&mut self.open_step.losses);
        let own = self.plan.mesh.world_rank(Coordinate { rank, shard: 0, ..self.at });
        if own != self.transport.rank() || self.scores.is_empty() {
            losses.begin();
        }
        let replicas = self.plan.replicas();
        let has_some = |replica: &u32| !self.plan.groups.share(*replica, replicas).is_empty();
        for replica in (0..replicas).filter(has_some).collect::<Vec<_>>() {
            let from = self.plan.mesh.world_rank(Coordinate { replica, rank, shard: 0 });
            if from == self.transport.rank() {
                losses.hear_own(from)?;
                continue;
            }
            let told = self.block_of(from, LOSSES)?;
            losses.hear(from, &told)?;
            self.open_step.blocks.push(told);
        }
        self.open_step.losses = losses;
        Ok(())
    }

    /// Agrees with all ranks on the step before. If its update was wrong, takes back that step and the
    /// current one, and returns true.
    pub(in crate::worker) fn takes_back_step_before(&mut self) -> Result<bool> {
        let Some(before) = self.open_step.open.take() else {
            return Ok(false);
        };
        for peer in self.others() {
            let told = self.block_of(peer, STEP_BEFORE)?;
            self.agreement.hear(peer, &told)?;
            self.open_step.blocks.push(told);
        }
        self.agreement.hear_own(self.transport.rank())?;
        let outcome = self.agreement.outcome(None);
        if matches!(outcome, StepOutcome::Updated(totals) if totals.clip_factor(&self.plan) == 1.0) {
            return Ok(false);
        }
        self.take_back()?;
        self.open_step.taken_back = Some((before, outcome));
        Ok(true)
    }

    /// How this rank ends its step before the others have ended theirs: as if nothing had to be clipped, and
    /// all numbers were finite.
    pub(in crate::worker) fn end_before_others(&mut self, run: &Execution<'_>) -> Result<Ending> {
        self.keep()?;
        self.open_step.blocks.truncate(self.transport.ranks() as usize);
        self.open_step.open = Some((run.step, run.learning_rate));
        Ok(match self.open_step.losses.score() {
            Ok(score) => Ending::Update(StepTotals { score, divisor: score.weight, grad_norm: 0.0 }),
            Err(_) => Ending::Discard,
        })
    }

    /// All ranks but this one.
    fn others(&self) -> impl Iterator<Item = WorldRank> + use<S> {
        let (own, ranks) = (self.transport.rank(), self.transport.ranks());
        (0..ranks).map(WorldRank).filter(move |rank| *rank != own)
    }

    fn tell_all(&mut self, tag: Tag, told: impl Fn(&Self) -> &[u8]) -> Result<()> {
        for peer in self.others() {
            let mut block = empty_block(&mut self.open_step.blocks);
            block.extend_from_slice(told(self));
            let (progress, transport) = (&self.meter.progress, &mut self.transport);
            progress.during(WaitsFor::Rank(peer), || transport.send_bytes(peer, tag, block))?;
        }
        Ok(())
    }

    fn block_of(&mut self, peer: WorldRank, tag: Tag) -> Result<Vec<u8>> {
        let transport = &mut self.transport;
        self.meter.wait(WaitsFor::Rank(peer), || transport.recv_bytes(peer, tag))
    }

    /// Keeps what the update will change.
    fn keep(&mut self) -> Result<()> {
        let kept = &mut self.open_step.kept;
        let mut count = 0;
        for chunk in &mut self.chunks {
            visit(&mut chunk.stage, |_, parameter| {
                if !parameter.is_frozen() {
                    if count == kept.len() {
                        kept.push(Kept::default());
                    }
                    kept[count].keep(parameter);
                    count += 1;
                }
                Ok(())
            })?;
        }
        kept.truncate(count);
        Ok(())
    }

    /// Sets what the update has changed to what it was.
    fn take_back(&mut self) -> Result<()> {
        let mut kept = self.open_step.kept.iter();
        let stages = self.chunks.iter_mut().flat_map(|chunk| chunk.stage.parameters());
        let mut trained = stages.filter(|parameter| !parameter.is_frozen()).zip(&mut kept);
        trained.try_for_each(|(parameter, kept)| kept.give_back(parameter))
    }
}
