//! What a run needs to go on after a process was lost.

use std::thread;
use std::time::{Duration, Instant};

#[cfg(test)]
use super::best::Best;
use super::best::BestSoFar;
use super::told::Told;
use crate::interrupt::Interrupt;

/// The pause before the run goes on after its second loss. It doubles with each further one.
const PAUSE: Duration = Duration::from_millis(50);

/// The longest pause.
const LONGEST: Duration = Duration::from_secs(5);

/// The time between two looks for an interrupt.
const LOOK: Duration = Duration::from_millis(20);

/// The settings that must be equal in all processes, by name.
pub(super) type InCommon = Vec<(String, String)>;

/// What a run needs to go on after the loss of a process.
#[derive(Debug)]
pub(super) struct Rejoining {
    /// What must be equal in all processes.
    pub(super) in_common: InCommon,
    /// How often processes were lost.
    pub(super) losses: u32,
    pub(super) told: Told,
    /// The best checkpoint whenever it was another one, the oldest first.
    bests: Vec<BestSoFar>,
}

impl Rejoining {
    pub(super) fn new(in_common: InCommon, best: BestSoFar) -> Self {
        Self { in_common, losses: 0, told: Told::default(), bests: vec![best] }
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

    /// Waits before the next of several losses is made good, but not after an interrupt.
    pub(super) fn pause(&self, interrupt: &Interrupt) {
        let Some(doubled) = self.losses.checked_sub(2) else {
            return;
        };
        let until = Instant::now() + PAUSE.saturating_mul(1 << doubled.min(16)).min(LONGEST);
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
