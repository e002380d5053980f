//! What a change has brought that somebody asked for.

use std::collections::VecDeque;

use crate::plan::median;

/// How many steps are looked at before and after a change.
const WINDOW: usize = 8;

/// How many steps after a change do not count: memory is touched for the first time.
const WARM_UP: usize = 2;

/// How long steps took before and after the newest change that somebody asked for.
#[derive(Clone, Debug, Default)]
pub(super) struct Effect {
    /// The seconds of the newest steps.
    newest: VecDeque<f64>,
    /// The seconds of a step before the change, and the number of steps since then.
    changed: Option<(f64, usize)>,
}

impl Effect {
    /// Adds a step. Returns the seconds of a step before and after the change, once they are known.
    pub(super) fn add(&mut self, seconds: f64) -> Option<[f64; 2]> {
        if self.newest.len() == WINDOW {
            self.newest.pop_front();
        }
        self.newest.push_back(seconds);
        let (before, since) = self.changed.as_mut()?;
        *since += 1;
        if *since < WARM_UP + WINDOW {
            return None;
        }
        let now = median(self.newest.iter().copied())?;
        let told = [*before, now];
        self.changed = None;
        Some(told)
    }

    /// The run changes. `is_asked`: somebody wants it.
    pub(super) fn changes(&mut self, is_asked: bool) {
        let before = median(self.newest.iter().copied()).filter(|_| self.newest.len() == WINDOW);
        self.changed = before.filter(|_| is_asked).map(|before| (before, 0));
        self.newest.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(effect: &mut Effect, seconds: f64, steps: usize) -> Vec<[f64; 2]> {
        (0..steps).filter_map(|_| effect.add(seconds)).collect()
    }

    #[test]
    fn a_change_that_was_asked_for_is_measured_once() {
        let mut effect = Effect::default();
        assert_eq!(told(&mut effect, 4.0, 20), [[0.0; 2]; 0]);
        effect.changes(true);
        assert_eq!(told(&mut effect, 99.0, WARM_UP), [[0.0; 2]; 0]);
        assert_eq!(told(&mut effect, 3.0, 30), [[4.0, 3.0]]);
        effect.changes(true);
        assert_eq!(told(&mut effect, 2.0, 5), [[0.0; 2]; 0]);
        // Nobody knows what the first one brought, nor what came before the second one.
        effect.changes(true);
        assert_eq!(told(&mut effect, 1.0, 30), [[0.0; 2]; 0]);
        effect.changes(false);
        assert_eq!(told(&mut effect, 1.0, 30), [[0.0; 2]; 0]);
    }
}
