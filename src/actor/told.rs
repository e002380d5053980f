//! What was told of a stall.

use std::time::Duration;

use crate::situation::{Root, Situation, Stall};

/// A stall is told again when it has lasted this number of times as long.
const LATER: u32 = 10;

/// The stall that was told, if there is one.
#[derive(Default)]
pub(super) struct Told(Option<Now>);

struct Now {
    roots: Vec<Root>,
    /// The time for which it has lasted.
    lasts: Duration,
    /// Told again then.
    again: Duration,
}

impl Told {
    /// Whether a stall was told that may go on.
    pub(super) fn is_open(&self) -> bool {
        self.0.is_some()
    }

    /// So much time has passed.
    pub(super) fn pass(&mut self, time: Duration) {
        if let Some(now) = &mut self.0 {
            now.lasts += time;
        }
    }

    /// What is to be told now. `usual`: the seconds without a move after which it is a stall.
    pub(super) fn next(&mut self, situation: &Situation, usual: Option<f64>) -> Option<Stall> {
        let found = usual.and_then(|usual| Some((usual, situation.roots(usual)?)));
        let Some(now) = &mut self.0 else {
            let (usual, roots) = found?;
            let lasts = Duration::try_from_secs_f64(usual).unwrap_or_default();
            let situation = situation.clone();
            self.0 = Some(Now { roots: roots.clone(), lasts, again: lasts.saturating_mul(LATER) });
            return Some(Stall::Began { roots, situation });
        };
        if let Some((_, roots)) = found {
            if now.lasts < now.again {
                return None;
            }
            now.again = now.lasts.saturating_mul(LATER);
            let situation = situation.clone();
            return Some(Stall::GoesOn { roots, situation });
        }
        let is_over = now.roots.iter().all(|root| situation.answers(*root));
        let seconds = now.lasts.as_secs_f64();
        self.0 = None;
        // If it ended otherwise, such as by the end of a process, the call fails and says so.
        is_over.then_some(Stall::Over { seconds })
    }
}
