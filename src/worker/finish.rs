//! The end of a step: tied gradients are summed, all ranks agree on loss and norm, weights change.

use pipewright_stages::Stage;
use pipewright_stages::optimizer::{Update, clip_factor};

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
        let copy = |stage, index| {
            ties.iter().any(|tie| {
                tie.sites[1..]
                    .iter()
                    .any(|site| (site.stage, site.index) == (stage, index))
            })
        };
        let squares = |(index, parameter): (usize, &mut pipewright_stages::Parameter), stage| {
            if copy(stage, index) {
                0.0
            } else {
                parameter.grad_squares()
            }
        };
        self.slots
            .iter_mut()
            .map(|slot| {
                let parameters = slot.stage.parameters().into_iter().enumerate();
                (slot.id, parameters.map(|entry| squares(entry, slot.id)).collect())
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
        for parameter in self.slot(stage).stage.parameters() {
            optimizer.update(parameter, update);
            parameter.grad.fill(0.0);
        }
    }

    fn forget(&mut self, stage: StageId) {
        for parameter in self.slot(stage).stage.parameters() {
            parameter.grad.fill(0.0);
        }
    }
}
