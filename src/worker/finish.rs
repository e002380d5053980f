//! The end of a step: tied gradients are summed, all ranks agree on loss and norm, weights change.

use std::thread;
use std::time::{Duration, Instant};

use pipewright_stages::optimizer::{self, Update, clip_factor};
use pipewright_stages::{Parameter, Stage};

use super::Worker;
use super::chunk::chunk_of;
use super::execution::Execution;
use super::outcome::{Outcome, Totals};
use super::progress::WaitsFor;
use super::reduction::Reduction;
use crate::error::Result;
use crate::id::{MicroBatch, StageId};

/// For this long a rank asks its device without a pause whether it has finished. A longer time would slow
/// other ranks' threads: the driver serves one thread at a time.
const SPIN: Duration = Duration::from_micros(50);

/// After that: the pause between two questions.
const POLL: Duration = Duration::from_micros(20);

impl<S: Stage> Worker<S> {
    /// Updates one stage's weights. The rank's first stage does the agreement with the other ranks.
    pub(super) fn step(&mut self, run: &mut Execution<'_>, stage: StageId) -> Result<()> {
        if self.server.is_some() {
            return self.end_stale_step(run);
        }
        let agreed = match run.outcome {
            Some(agreed) => agreed,
            None => *run.outcome.insert(self.agree()?),
        };
        run.stepped += 1;
        match agreed {
            Outcome::Updated(totals) => self.update(run, stage, &totals)?,
            Outcome::NotFinite(_) => return self.discard_gradients(stage),
        }
        if !self.sharded || run.stepped < self.chunks.len() {
            return Ok(());
        }
        if self.on_gpus {
            return self.exchange_weights_on_gpus();
        }
        // A schedule from a file may step in any order. All replicas must exchange in one order.
        for index in 0..self.chunks.len() {
            self.exchange_new_weights(self.chunks[index].id)?;
        }
        Ok(())
    }

    fn agree(&mut self) -> Result<Outcome> {
        self.finish_reductions()?;
        self.sum_tied_gradients()?;
        for chunk in &mut self.chunks {
            self.together.visit(&mut chunk.stage, |parameter, together| {
                parameter.start_grad_squares(together)
            })?;
        }
        self.await_devices()?;
        self.tell_own();
        let (transport, agreement) = (&mut self.transport, &mut self.agreement);
        self.meter
            .wait(WaitsFor::All, || agreement.exchange(transport.as_mut()))?;
        Ok(self.agreement.outcome())
    }

    /// This rank's scores, and the squared gradients that it owns. A tied parameter counts only at its first
    /// site.
    fn tell_own(&mut self) {
        self.agreement.begin();
        self.tell_scores();
        let share = &self.share;
        let ties = &self.ties;
        let is_copy = |stage, index| {
            let mut copies = ties.iter().flat_map(|tie| &tie.sites[1..]);
            copies.any(|site| (site.stage, site.index) == (stage, index))
        };
        for chunk in &mut self.chunks {
            let stage = chunk.id;
            let reduction = self
                .reductions
                .iter()
                .find(|reduction| reduction.stage() == stage);
            let slices = reduction.map(Reduction::slices);
            let mut index = 0;
            chunk.stage.visit_gradients(&mut |parameter| {
                let owned = slices.map_or(0..parameter.trained(), |slices| {
                    slices.owned(index, share.replica)
                });
                let pieces = owned.start / Parameter::PIECE..owned.end.div_ceil(Parameter::PIECE);
                for piece in pieces.filter(|_| !is_copy(stage, index)) {
                    let square = parameter.grad_squares(piece);
                    self.agreement.tell_gradient(stage, index, piece, square);
                }
                index += 1;
            });
        }
    }

    /// The scores of this replica's micro-batches, on its rank of the last stage.
    pub(super) fn tell_scores(&mut self) {
        let share = &self.share;
        if let Some(loss) = &mut self.loss {
            let scores = (0..).zip(&self.scores).map(|(index, score)| {
                let micro_batch = MicroBatch(share.first() + index);
                let score = score.unwrap_or_else(|| loss.finish(index));
                (micro_batch, share.group(micro_batch), score)
            });
            self.agreement.tell_scores(scores);
        }
    }

    fn update(&mut self, run: &Execution<'_>, stage: StageId, totals: &Totals) -> Result<()> {
        let micro_batches = self.share.micro_batches();
        let update = update_of(totals, micro_batches, self.clip, run.step + 1, run.learning_rate);
        let optimizer = std::sync::Arc::clone(&self.optimizer);
        let chunk = chunk_of(&mut self.chunks, stage);
        self.together.visit(&mut chunk.stage, |parameter, together| {
            optimizer::update(optimizer.as_ref(), parameter, update, together)
        })?;
        self.discard_gradients(stage)
    }

    pub(super) fn discard_gradients(&mut self, stage: StageId) -> Result<()> {
        let chunk = chunk_of(&mut self.chunks, stage);
        Ok(self.together.visit(&mut chunk.stage, Parameter::start_sum)?)
    }

    /// Waits until the rank's device has finished all its work.
    pub(super) fn await_devices(&mut self) -> Result<()> {
        let (chunks, transport) = (&self.chunks, &mut self.transport);
        let since = Instant::now();
        // A device may itself wait for another rank's device.
        self.meter.wait(WaitsFor::All, || {
            for chunk in chunks {
                while !chunk.stage.is_idle()? {
                    transport.check()?;
                    if since.elapsed() < SPIN {
                        thread::yield_now();
                    } else {
                        thread::sleep(POLL);
                    }
                }
            }
            // If a peer has stopped, the device's work may have been cut short. Then its numbers mean
            // nothing.
            transport.check()
        })
    }
}

/// The update with this number, from a step's totals.
pub(super) fn update_of(
    totals: &Totals,
    micro_batches: u32,
    clip: Option<f64>,
    step: u64,
    learning_rate: f64,
) -> Update {
    let clip = clip.map_or(1.0, |limit| clip_factor(totals.grad_norm, limit));
    let weight = totals.score.weight;
    Update {
        step,
        learning_rate,
        scale: if weight > 0.0 { clip / weight } else { 0.0 },
        micro_batches,
    }
}
