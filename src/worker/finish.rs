//! The end of a step: tied gradients are summed, all ranks agree on loss and norm, weights change.

use pipewright_stages::optimizer::{Update, clip_factor};
use pipewright_stages::{Parameter, Stage};

use super::verdict::{Ballot, Outcome, Verdict};
use super::{Current, Worker};
use crate::error::Result;
use crate::id::StageId;
use crate::transport::all_gather;

impl<S: Stage> Worker<S> {
    /// Updates one stage's weights; the first of the rank's stages brings about the agreement with the other ranks.
    pub(super) fn step(
        &mut self,
        current: Current,
        stage: StageId,
        outcome: &mut Option<Outcome>,
    ) -> Result<()> {
        let agreed = match *outcome {
            Some(agreed) => agreed,
            None => *outcome.insert(self.agree()?),
        };
        match agreed {
            Outcome::Updated(verdict) => self.update(current, stage, &verdict),
            Outcome::NotFinite(_) => self.forget(stage),
        }
        Ok(())
    }

    fn agree(&mut self) -> Result<Outcome> {
        self.sum_tied_gradients()?;
        let scores = if self.loss.is_some() {
            self.scores.clone()
        } else {
            Vec::new()
        };
        let squares = self.grad_squares();
        let ballot = Ballot { scores, squares }.encode();
        let transport = &mut self.transport;
        let ballots = self.meter.wait(|| all_gather(transport.as_mut(), &ballot))?;
        Ok(match Ballot::merge(&ballots).verdict() {
            Ok(verdict) => Outcome::Updated(verdict),
            Err(fault) => Outcome::NotFinite(fault),
        })
    }

    /// Each stage's squared gradients by parameter; a tied parameter counts at its first site only.
    fn grad_squares(&mut self) -> Vec<(StageId, Vec<f64>)> {
        let ties = &self.ties;
        let is_copy = |stage, index| {
            let mut copies = ties.iter().flat_map(|tie| &tie.sites[1..]);
            copies.any(|site| (site.stage, site.index) == (stage, index))
        };
        self.slots
            .iter_mut()
            .map(|slot| {
                let mut squares = Vec::new();
                slot.stage.visit_parameters(&mut |parameter| {
                    let copy = is_copy(slot.id, squares.len());
                    squares.push(if copy { 0.0 } else { parameter.grad_squares() });
                });
                (slot.id, squares)
            })
            .collect()
    }

    fn update(&mut self, current: Current, stage: StageId, verdict: &Verdict) {
        let clip = self
            .clip
            .map_or(1.0, |limit| clip_factor(verdict.grad_norm, limit));
        let weight = verdict.score.weight;
        let scale = if weight > 0.0 { clip / weight } else { 0.0 };
        let update = Update {
            step: current.step + 1,
            learning_rate: current.learning_rate,
            scale,
        };
        let optimizer = std::sync::Arc::clone(&self.optimizer);
        self.slot(stage).stage.visit_parameters(&mut |parameter| {
            optimizer.update(parameter, update);
            parameter.grad.fill(0.0);
        });
    }

    fn forget(&mut self, stage: StageId) {
        let forget = &mut |parameter: &mut Parameter| parameter.grad.fill(0.0);
        self.slot(stage).stage.visit_parameters(forget);
    }
}
