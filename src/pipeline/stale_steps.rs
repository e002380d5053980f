//! Steps of a parameter server whose weights may be stale. A process does not wait for the others after each
//! step, but only where all must have the same weights: in a settlement.

use pipewright_stages::Stage;

use super::alike;
use super::running::Pipeline;
use crate::actor::Job;
use crate::error::Result;
use crate::worker::{Staleness, StepOutcome, StepRequest, Trained, Worker};

impl<S: Stage> Pipeline<S> {
    /// Whether steps may have weights that are stale.
    pub(super) fn is_stale(&self) -> bool {
        self.plan.max_staleness() > 0
    }

    /// How stale the weights of all ranks were in the steps that this pipeline has run, if they may be stale
    /// at all. The steps since the last call in which all had the same weights (an evaluation, a checkpoint,
    /// a hash) are not counted yet.
    pub fn staleness(&self) -> Option<Staleness> {
        self.is_stale().then_some(self.stale.seen)
    }

    /// Whether there were steps since the last settlement.
    pub(super) fn is_open(&self) -> bool {
        self.stale.since.is_some()
    }

    /// The step whose loss and norm are reported after this one: the newest that all ranks know to have
    /// become an update.
    pub(super) fn reported(&self, step: u64) -> u64 {
        match self.stale.since {
            Some((first, _)) => step.saturating_sub(self.plan.max_staleness().into()).max(first),
            None => step,
        }
    }

    /// Runs a step with this process's ranks, without waiting for other processes. Only the timeline of a
    /// traced one needs all of them.
    pub(super) fn train_stale(&mut self, request: StepRequest) -> Result<Vec<Trained>> {
        let (_, call) = *self.stale.since.get_or_insert((request.step, request.call));
        let asks = std::mem::take(&mut self.stale.asks);
        let request = StepRequest { call, asks, ..request };
        let answers = match request.trace_from {
            None => self.ranks.ask_own("training", |_| Job::train(request)),
            Some(_) => self.ranks.ask_all("training", |_| Job::train(request)),
        };
        let answers = self.note(answers)?;
        self.stale.asked = answers.iter().any(|answer| answer.asked);
        Ok(answers)
    }

    /// Waits until no weight is stale any more, in any process. It is a part of the call that follows.
    ///
    /// # Errors
    /// [`Error::NotFinite`](crate::Error::NotFinite) when a step that nobody has reported was discarded.
    pub(crate) fn settle(&mut self) -> Result<()> {
        let Some((first, _)) = self.stale.since.take() else {
            return Ok(());
        };
        (self.stale.asks, self.stale.asked) = (false, false);
        let answers = self.ranks.ask_all("bringing the replicas together", |_| Job::must(Worker::settle));
        let answers = self.note(answers)?;
        for answer in &answers {
            self.stale.seen += answer.staleness;
        }
        if let Some(data) = &self.summed {
            let steps = first..self.next_step;
            let call = format!("steps {first} to {}", self.next_step - 1);
            let same = alike::same_batches(&self.ranks, &call, data, steps);
            self.note(same)?;
        }
        let one = answers.into_iter().next();
        let unreported = one.map(|settled| settled.unreported).unwrap_or_default();
        let from = self.next_step - unreported.len() as u64;
        let mut found = (from..).zip(unreported);
        found.try_for_each(|(step, outcome)| match outcome {
            StepOutcome::Updated(_) => Ok(()),
            StepOutcome::NotFinite(fault) => Err(self.discarded(step, fault)),
        })
    }

    /// The answer to [`Pipeline::any`] while weights may be stale: the answer in the newest step that all
    /// processes know of. `None` where nothing is stale.
    pub(super) fn any_stale(&mut self, yes: bool) -> Option<bool> {
        self.stale.since?;
        self.stale.asks |= yes;
        Some(self.stale.asked)
    }
}
