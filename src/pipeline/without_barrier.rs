//! Steps without a barrier: which step begins before the last one has ended, and when that pays.

use std::time::Instant;

use pipewright_stages::Stage;

use super::running::{Begun, NextStep, Pipeline, QUIET};
use crate::actor::Job;
use crate::error::{CallError, Result};
use crate::worker::{Plan, StepOutcome, StepRequest, Trained, outcome_of};

/// The most steps that must need no clipping before a step begins early.
const MOST_QUIET: u64 = 512;

impl<S: Stage> NextStep<S> {
    /// Whether the step after this one may begin before this one has ended.
    pub(super) fn goes_on(&self, step: u64, plan: &Plan) -> bool {
        let is_quiet = plan.clip.is_none() || self.quiet >= self.needed;
        !plan.barrier && is_quiet && step + 1 < self.until
    }
}

impl<S: Stage> Pipeline<S> {
    /// Says that the caller makes no other call between the steps before this one (numbers count from 0).
    /// Without a [barrier](super::PipelineBuilder::barrier), ranks then begin a step while other ranks still
    /// finish the step before it. While the next step runs ([`Pipeline::next_has_begun`]), other calls return
    /// [`CallError`]. With a barrier it changes nothing. Several processes must say the same.
    pub fn steps_until(&mut self, step: u64) {
        self.next.until = step;
    }

    /// Whether the next step has begun: see [`Pipeline::steps_until`].
    pub fn next_has_begun(&self) -> bool {
        self.next.begun.is_some()
    }

    /// Refuses a call while the next step has begun.
    pub(super) fn check_not_begun(&self) -> Result<()> {
        match &self.next.begun {
            None => Ok(()),
            Some(Begun { step, .. }) => Err(CallError::new(format!(
                "step {step} runs already, because `steps_until` said that it follows at once: call `step` \
                 before other calls, or give `steps_until` a smaller number"
            ))
            .into()),
        }
    }

    /// Runs a step, and begins the one after it if that may begin early. Returns the ranks' answers, and how
    /// long the step took: since the call, or since the step before has ended, if this one had begun then.
    pub(super) fn run_without_barrier(&mut self) -> Result<(Vec<Trained>, f64)> {
        let (begun, since) = match self.next.begun.take() {
            Some(begun) => (begun, self.next.ended),
            None => (self.begin_step(self.next_step)?, Instant::now()),
        };
        let Begun { step, goes_on, .. } = begun;
        if goes_on {
            self.next.begun = Some(self.begin_step(step + 1)?);
        }
        let mut answers = self.answers(begun)?;
        self.next.ended = Instant::now();
        let outcome = match answers[0].outcome {
            Some(outcome) => outcome,
            None => {
                let outcome = outcome_of(answers.iter().map(|answer| &answer.told[..]));
                self.note(outcome)?
            }
        };
        answers[0].outcome = Some(outcome);
        self.learn(outcome, goes_on);
        if let StepOutcome::NotFinite(_) = outcome
            && let Some(begun) = self.next.begun.take()
        {
            // It was taken back, with this one. If a rank failed in it, that shows in the next call.
            let _ = self.answers(begun);
        }
        Ok((answers, (self.next.ended - since).as_secs_f64()))
    }

    /// Tells the ranks of a step, and does not wait for them.
    fn begin_step(&mut self, step: u64) -> Result<Begun<S>> {
        self.text.end();
        let goes_on = self.next.goes_on(step, &self.plan);
        let call = match goes_on {
            true => self.announce(format_args!("step {step}, which the next one follows at once"))?,
            false => self.announce(format_args!("step {step}"))?,
        };
        self.read_data(step);
        let asks = std::mem::take(&mut self.next.asks);
        let request = StepRequest { goes_on, asks, ..self.request(call, step, None) };
        Ok(Begun { step, goes_on, asked: self.ranks.send(|_| Job::train(request)) })
    }

    /// Waits until the ranks of all processes have done their part of a step.
    fn answers(&mut self, begun: Begun<S>) -> Result<Vec<Trained>> {
        let mut next = self.next.begun.take();
        let later = next.as_mut().map(|next| &mut next.asked);
        let answers = self.ranks.answers("training", begun.asked, later);
        let answers = self.note(answers)?;
        self.next.asked = answers.iter().any(|answer| answer.asked);
        self.compare_batches(begun.step)?;
        self.next.begun = next;
        Ok(answers)
    }

    /// Learns from the end of a step, if steps have no barrier. `goes_on`: the next one had begun, so both
    /// are run again if this one was clipped. Each time, twice as many steps in a row must need no clipping
    /// before one begins early again, up to [`MOST_QUIET`].
    pub(super) fn learn(&mut self, outcome: StepOutcome, goes_on: bool) {
        let is_clipped = match outcome {
            StepOutcome::Updated(totals) => totals.clip_factor(&self.plan) < 1.0,
            StepOutcome::NotFinite(_) => true,
        };
        let next = &mut self.next;
        next.taken_back = is_clipped && goes_on;
        if is_clipped {
            next.quiet = 0;
            if goes_on {
                next.needed = (2 * next.needed).min(MOST_QUIET);
            }
            return;
        }
        next.quiet += 1;
        if next.quiet >= 4 * next.needed {
            next.needed = (next.needed / 2).max(QUIET);
            next.quiet = next.needed;
        }
    }

    /// The answer to [`Pipeline::any`] while the next step has begun. Other processes learn of this one's
    /// answer with the step after that.
    pub(super) fn any_while_begun(&mut self, yes: bool) -> Option<bool> {
        self.next.begun.as_ref()?;
        let is_alone = self.processes() == 1;
        self.next.asks |= yes && !is_alone;
        Some(self.next.asked || (yes && is_alone))
    }
}
