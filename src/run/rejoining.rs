//! What a run needs to go on after a process was lost. It repeats some steps then, and does not report them
//! again.

use std::collections::VecDeque;
use std::thread;
use std::time::{Duration, Instant};

use super::directory::writer::Files;
#[cfg(test)]
use super::validation::Best;
use super::validation::BestSoFar;
use crate::error::{RestartError, Result};
use crate::interrupt::Interrupt;
use crate::pipeline::StepReport;
use crate::store::Store;
use crate::worker::pause_after;

/// The number of steps whose numbers are kept, to compare them with the numbers of repeated steps.
const KEPT: usize = 1024;

/// The last step of each kind of news that was told.
#[derive(Debug, Default)]
pub(super) struct Told {
    pub(super) steps: Last,
    pub(super) lines: Last,
    pub(super) validations: Last,
    pub(super) samples: Last,
    /// The loss and the gradient norm of the newest steps.
    numbers: VecDeque<(u64, [f64; 2])>,
}

/// The last step that was told.
#[derive(Debug, Default)]
pub(super) struct Last(Option<u64>);

impl Last {
    /// The first step that was not told yet.
    pub(super) fn next(&self) -> u64 {
        self.0.map_or(0, |last| last + 1)
    }

    /// Whether this step was not told yet. From now on it is.
    pub(super) fn is_new(&mut self, step: u64) -> bool {
        let is_new = self.0.is_none_or(|last| step > last);
        if is_new {
            self.0 = Some(step);
        }
        is_new
    }
}

impl Told {
    /// What was told of a run in which `done` steps are done.
    pub(super) fn until(done: u64) -> Self {
        let step = || Last(done.checked_sub(1));
        let after = || Last(Some(done));
        Self {
            steps: step(),
            lines: step(),
            validations: after(),
            samples: after(),
            numbers: VecDeque::new(),
        }
    }

    /// Whether this step was not told yet.
    ///
    /// # Errors
    /// [`RestartError`] if it is repeated and has other numbers than before.
    pub(super) fn is_new(&mut self, report: &StepReport) -> Result<bool> {
        let (step, numbers) = (report.step, [report.loss, report.grad_norm]);
        if self.steps.is_new(step) {
            if self.numbers.len() == KEPT {
                self.numbers.pop_front();
            }
            self.numbers.push_back((step, numbers));
            return Ok(true);
        }
        let before = self.numbers.iter().find(|(of, _)| *of == step);
        match before {
            Some((_, before)) if before.map(f64::to_bits) != numbers.map(f64::to_bits) => {
                let (before, now) = (*before, numbers);
                Err(RestartError::new(format!(
                    "step {step} was repeated after the loss of a process, and gave loss {} and gradient \
                     norm {}, not {} and {} as before: a stage may depend only on its parameters, its input, \
                     the step and the micro-batch; with one that does not, set `train.restarts` to 0",
                    now[0], now[1], before[0], before[1]
                ))
                .into())
            }
            _ => Ok(false),
        }
    }
}

/// The time between two looks for an interrupt.
const LOOK: Duration = Duration::from_millis(20);

/// The settings that must be equal in all processes, by name.
pub(super) type InCommon = Vec<(String, String)>;

/// What process 0 needs to lead a run.
#[derive(Debug)]
pub(super) struct Lead {
    pub(super) files: Files,
    /// Where checkpoints are copied to.
    pub(super) copy_to: Option<Store>,
}

/// What a run needs to go on after the loss of a process.
#[derive(Debug)]
pub(super) struct Rejoining {
    /// Whether this process takes the place of a lost one, and does not know the run yet.
    pub(super) takes_part: bool,
    /// Before this time nobody is taken in.
    pause_until: Option<Instant>,
    /// What must be equal in all processes.
    pub(super) in_common: InCommon,
    /// How often processes were lost.
    pub(super) losses: u32,
    pub(super) told: Told,
    /// The best checkpoint whenever it was another one, the oldest first.
    pub(super) bests: Vec<BestSoFar>,
}

impl Rejoining {
    pub(super) fn new(in_common: InCommon, best: BestSoFar) -> Self {
        Self {
            takes_part: false,
            pause_until: None,
            in_common,
            losses: 0,
            told: Told::default(),
            bests: vec![best],
        }
    }

    /// There is a new best checkpoint. The run never goes back to before `back_to` steps.
    pub(super) fn add_best(&mut self, best: &BestSoFar, back_to: u64) {
        self.bests.push(best.clone());
        let is_old = |best: &BestSoFar| best.best.is_none_or(|best| best.step <= back_to);
        if let Some(newest) = self.bests.iter().rposition(is_old) {
            self.bests.drain(..newest);
        }
    }

    /// The best checkpoint when `done` steps were done.
    pub(super) fn best_at(&self, done: u64) -> BestSoFar {
        let was = |best: &&BestSoFar| best.best.is_none_or(|best| best.step <= done);
        self.bests.iter().rev().find(was).cloned().unwrap_or_default()
    }

    /// Whether processes that wait may take part now.
    pub(super) fn heeds_newcomers(&self) -> bool {
        self.pause_until.is_none_or(|until| Instant::now() >= until)
    }

    pub(super) fn heed_newcomers_after(&mut self, pause: Duration) {
        self.pause_until = Some(Instant::now() + pause);
    }

    /// Waits before the next of several losses is made good, but not after an interrupt.
    pub(super) fn pause(&self, interrupt: &Interrupt) {
        let until = Instant::now() + pause_after(self.losses.saturating_sub(1));
        while Instant::now() < until && !interrupt.is_requested() {
            thread::sleep(LOOK.min(until.saturating_duration_since(Instant::now())));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_bests_to_which_a_run_may_go_back_are_kept() {
        let at = |step| BestSoFar {
            best: Some(Best { step, validation_loss: 1.0 / step as f64 }),
            validation: None,
        };
        let mut rejoining = Rejoining::new(Vec::new(), BestSoFar::default());
        for step in 1..1000 {
            rejoining.add_best(&at(step), step.saturating_sub(7));
            assert!(rejoining.bests.len() <= 8, "{}", rejoining.bests.len());
            for done in step.saturating_sub(7)..=step {
                let expected = if done == 0 { BestSoFar::default() } else { at(done) };
                assert_eq!(rejoining.best_at(done).best, expected.best);
            }
        }
    }
}
