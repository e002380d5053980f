//! The end of a step: tied gradients are summed, all ranks agree on loss and norm, weights change.

use std::thread;
use std::time::{Duration, Instant};

use pipewright_stages::optimizer::{Update, clip_factor};
use pipewright_stages::{Parameter, Stage};

use super::Worker;
use super::execution::Execution;
use super::progress::WaitsFor;
use super::verdict::{Outcome, Verdict};
use crate::error::Result;
use crate::id::StageId;

/// For this long a rank asks its device without a pause whether it has finished. A longer time would slow
/// other ranks' threads: the driver serves one thread at a time.
const SPIN: Duration = Duration::from_micros(50);

/// After that: the pause between two questions.
const POLL: Duration = Duration::from_micros(20);

impl<S: Stage> Worker<S> {
    /// Updates one stage's weights. The rank's first stage does the agreement with the other ranks.
    pub(super) fn step(&mut self, run: &mut Execution<'_>, stage: StageId) -> Result<()> {
        let agreed = match run.outcome {
            Some(agreed) => agreed,
            None => *run.outcome.insert(self.agree()?),
        };
        match agreed {
            Outcome::Updated(verdict) => self.update(run, stage, &verdict),
            Outcome::NotFinite(_) => self.discard_gradients(stage),
        }
    }

    fn agree(&mut self) -> Result<Outcome> {
        self.sum_tied_gradients()?;
        for slot in &mut self.slots {
            slot.stage
                .try_visit_parameters(&mut |parameter| parameter.start_grad_squares())?;
        }
        self.await_devices()?;
        self.fill_ballot();
        let (transport, ballots) = (&mut self.transport, &mut self.ballots);
        self.meter
            .wait(WaitsFor::All, || ballots.exchange(transport.as_mut()))?;
        Ok(match self.ballots.verdict() {
            Ok(verdict) => Outcome::Updated(verdict),
            Err(fault) => Outcome::NotFinite(fault),
        })
    }

    /// This rank's scores and the squared gradient of each of its parameters. A tied parameter counts only at
    /// its first site.
    fn fill_ballot(&mut self) {
        if let Some(loss) = &mut self.loss {
            let scores = self.scores.iter().enumerate();
            let scores = scores.map(|(index, score)| score.unwrap_or_else(|| loss.finish(index as u32)));
            self.ballots.begin(scores);
        } else {
            self.ballots.begin([].into_iter());
        }
        let ties = &self.ties;
        let is_copy = |stage, index| {
            let mut copies = ties.iter().flat_map(|tie| &tie.sites[1..]);
            copies.any(|site| (site.stage, site.index) == (stage, index))
        };
        for slot in &mut self.slots {
            self.ballots.begin_stage(slot.id);
            let mut index = 0;
            slot.stage.visit_parameters(&mut |parameter| {
                let copy = is_copy(slot.id, index);
                self.ballots
                    .push_square(if copy { 0.0 } else { parameter.grad_squares() });
                index += 1;
            });
        }
    }

    fn update(&mut self, run: &Execution<'_>, stage: StageId, verdict: &Verdict) -> Result<()> {
        let clip = self
            .clip
            .map_or(1.0, |limit| clip_factor(verdict.grad_norm, limit));
        let weight = verdict.score.weight;
        let scale = if weight > 0.0 { clip / weight } else { 0.0 };
        let update = Update {
            step: run.step + 1,
            learning_rate: run.learning_rate,
            scale,
        };
        let optimizer = std::sync::Arc::clone(&self.optimizer);
        let updated = self.slot(stage).stage.try_visit_parameters(&mut |parameter| {
            optimizer.update(parameter, update)?;
            parameter.zero_grad()
        });
        Ok(updated?)
    }

    fn discard_gradients(&mut self, stage: StageId) -> Result<()> {
        let zero = &mut |parameter: &mut Parameter| parameter.zero_grad();
        Ok(self.slot(stage).stage.try_visit_parameters(zero)?)
    }

    /// Waits until the rank's device has finished all its work.
    pub(super) fn await_devices(&mut self) -> Result<()> {
        let (slots, transport) = (&self.slots, &mut self.transport);
        let since = Instant::now();
        // A device may itself wait for another rank's device.
        self.meter.wait(WaitsFor::All, || {
            for slot in slots {
                while !slot.stage.is_idle()? {
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
