//! The end of a step: tied gradients are summed, all ranks agree on loss and norm, weights change.

pub(super) mod agreement;
pub(super) mod open_step;
mod without_barrier;

use pipewright_stages::optimizer;
use pipewright_stages::{Shard, Stage};

use super::Worker;
use super::chunk::chunk_of;
use super::execution::Execution;
use super::progress::WaitsFor;
use crate::error::Result;
use crate::id::{MicroBatch, StageId};
use agreement::{Agreement, Ending, StepTotals};

impl<S: Stage> Worker<S> {
    /// Updates one stage's weights. The rank's first stage does the agreement with the other ranks.
    pub(super) fn step(&mut self, run: &mut Execution<'_>, stage: StageId) -> Result<()> {
        if self.strategy.is_serving() {
            return self.end_stale_step(run);
        }
        let ending = match run.ending {
            Some(ending) => ending,
            None => {
                let ending = self.end(run)?;
                *run.ending.insert(ending)
            }
        };
        run.stepped += 1;
        match ending {
            Ending::Update(totals) => self.update(run, stage, &totals)?,
            Ending::Discard => {
                return chunk_of(&mut self.chunks, stage).discard_gradients(&mut self.together);
            }
        }
        if run.stepped < self.chunks.len() {
            return Ok(());
        }
        // What replicas send each other has the numbers of followers too.
        self.follow_leaders(|tie| tie.is_trained)?;
        if !self.plan.is_sharded() {
            return Ok(());
        }
        let (strategy, mut access) = self.strategy_and_access();
        strategy.exchange_weights(&mut access)
    }

    /// Adds up the gradients, and agrees with the other ranks how the step ends.
    fn end(&mut self, run: &mut Execution<'_>) -> Result<Ending> {
        if let Some(privacy) = self.plan.privacy {
            self.clip(privacy)?;
        }
        let (strategy, mut access) = self.strategy_and_access();
        strategy.finish(&mut access)?;
        self.sum_tied_gradients()?;
        if let Some(privacy) = self.plan.privacy {
            self.add_noise(privacy, run.step)?;
        }
        if let Some(known) = run.known {
            run.outcome = Some(known);
            return Ok(known.into());
        }
        for chunk in &mut self.chunks {
            self.together
                .visit(&mut chunk.stage, |parameter, together| parameter.start_grad_squares(together))?;
        }
        self.await_devices()?;
        if run.goes_on {
            // Also if the step is taken back now: nothing may be left of it when it runs again.
            self.hear_losses()?;
        }
        if self.takes_back_step_before()? {
            return Ok(Ending::Discard);
        }
        self.tell_own();
        if run.goes_on {
            return self.end_before_others(run);
        }
        let (transport, agreement) = (&mut self.transport, &mut self.agreement);
        self.meter.wait(WaitsFor::All, || agreement.exchange(transport.as_mut()))?;
        let samples = self.plan.privacy.map(|_| self.plan.groups.micro_batches());
        Ok((*run.outcome.insert(self.agreement.outcome(samples))).into())
    }

    /// This rank's scores, and the squared gradients that it owns. A tied parameter counts only at its first
    /// site.
    fn tell_own(&mut self) {
        let mut agreement = std::mem::take(&mut self.agreement);
        agreement.begin();
        self.tell_scores(&mut agreement);
        self.agreement = agreement;
        let share = &self.share;
        let ties = &self.ties;
        let is_copy = |stage, index| {
            let mut copies = ties.iter().flat_map(|tie| &tie.sites[1..]);
            copies.any(|site| (site.stage, site.index) == (stage, index))
        };
        let is_first_shard = self.at.shard == 0;
        for chunk in &mut self.chunks {
            let stage = chunk.id;
            let slices = &chunk.slices;
            let mut index = 0;
            chunk.stage.visit_gradients(&mut |parameter| {
                let owned = slices.owned(index, share.replica);
                let pieces = parameter.pieces().within(owned);
                // All shards have the same gradient of what is not divided.
                let is_told = is_first_shard || parameter.shard() != Shard::WHOLE;
                for piece in pieces.filter(|_| is_told && !is_copy(stage, index)) {
                    parameter.grad_squares(piece, |sum, square| {
                        self.agreement.tell_gradient(stage, index, sum, square);
                    });
                }
                index += 1;
            });
        }
    }

    /// The scores of this replica's micro-batches, on its rank of the last stage: all its shards have the
    /// same.
    pub(super) fn tell_scores(&mut self, agreement: &mut Agreement) {
        if self.at.shard > 0 {
            return;
        }
        let share = &self.share;
        if let Some(loss) = &mut self.loss {
            let scores = (0..).zip(&mut self.scores).map(|(index, score)| {
                let micro_batch = MicroBatch(share.first() + index);
                let score = *score.get_or_insert_with(|| loss.finish(index));
                (micro_batch, share.group(micro_batch), score)
            });
            agreement.tell_scores(scores);
        }
    }

    fn update(&mut self, run: &Execution<'_>, stage: StageId, totals: &StepTotals) -> Result<()> {
        let update = totals.update(&self.plan, run.step + 1, run.learning_rate);
        let chunk = chunk_of(&mut self.chunks, stage);
        self.together.visit(&mut chunk.stage, |parameter, together| {
            optimizer::update(&*self.plan.optimizer, parameter, update, together)
        })?;
        chunk.discard_gradients(&mut self.together)
    }

    /// Waits until the rank's device has finished all its work.
    pub(super) fn await_devices(&mut self) -> Result<()> {
        let (_, mut access) = self.strategy_and_access();
        access.await_devices()
    }
}
