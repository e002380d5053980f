//! The predicted time, bubble and memory of a training step.

use crate::Result;
use crate::plan::Costs;
use crate::plan::{Simulation, simulate};
use crate::schedule::{LinkKind, Schedule};

/// A step as a [report](crate::StepReport) counts it, including the parameter update. Times are in the unit
/// of the costs.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// The time from one step to the next.
    pub step: f64,
    /// The idle share of that time, averaged over the ranks.
    pub bubble: f64,
    /// The most memory that a rank holds for later backwards.
    pub peak_memory: f64,
}

impl Prediction {
    /// The prediction for a schedule at these costs.
    ///
    /// # Errors
    /// As for [`simulate`].
    pub fn of(schedule: &Schedule, costs: &Costs, links: LinkKind) -> Result<Self> {
        let simulation = simulate(schedule, costs, links)?;
        let updates = costs.of(schedule.placement())?;
        let updates = updates.iter().map(|stage| stage.update).sum();
        Ok(Self::from(&simulation, updates))
    }

    /// The prediction from a simulation and the times of the ranks' updates.
    fn from(simulation: &Simulation, updates: f64) -> Self {
        let busy: f64 = simulation.ranks.iter().map(|rank| rank.busy).sum();
        let whole = simulation.step * simulation.ranks.len() as f64;
        Self {
            step: simulation.step,
            bubble: (1.0 - (busy + updates) / whole).max(0.0),
            peak_memory: simulation.peak_memory(),
        }
    }
}
