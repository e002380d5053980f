//! What a process knows of the steps of a parameter server whose weights may be stale.

use crate::fabric::Call;
use crate::worker::Staleness;

/// Where the steps stand since the last settlement.
#[derive(Debug, Default)]
pub(super) struct Stale {
    /// Of how many steps updates may be missing. 0: every step ends with the newest weights.
    pub(super) max_staleness: u32,
    /// The first step since the last settlement, and the call that it began.
    pub(super) since: Option<(u64, Call)>,
    /// Of all ranks, up to the last settlement.
    pub(super) seen: Staleness,
    /// Whether this process asks all to end.
    pub(super) asks: bool,
    /// Whether a process asked that, in the newest step that all know of.
    pub(super) asked: bool,
}

impl Stale {
    /// With at most so much staleness.
    pub(super) fn at_most(max_staleness: u32) -> Self {
        Self {
            max_staleness,
            ..Self::default()
        }
    }

    /// The step whose loss and norm are reported after this one: the newest that all ranks know to have
    /// become an update.
    pub(super) fn reported(&self, step: u64) -> u64 {
        match self.since {
            Some((first, _)) => step.saturating_sub(self.max_staleness.into()).max(first),
            None => step,
        }
    }
}
