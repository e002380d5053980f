//! The predicted time, bubble and memory of a training step.

use crate::Result;
use crate::plan::Costs;
use crate::plan::{Replicas, Simulation, period, simulate, simulate_replicas};
use crate::schedule::{LinkKind, Schedule};

/// A step as the report of a pipeline counts it, including the parameter update. Times are in the unit
/// of the costs.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Prediction {
    /// The time from one step to the next.
    pub step: f64,
    /// The idle share of that time, averaged over the ranks.
    pub bubble: f64,
    /// The most memory that a rank holds for later backwards.
    pub peak_memory: f64,
}

/// By how much a step is longer because ranks send to each other. In the unit of the costs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Exposed {
    /// By how much it is longer than if replicas added their gradients in no time, and collected weights in
    /// no time.
    pub reductions: f64,
    /// By how much it is longer than if transfers took no time.
    pub transfers: f64,
}

impl Prediction {
    /// The prediction for a schedule at these costs.
    ///
    /// # Errors
    /// As for [`simulate`].
    pub fn of(schedule: &Schedule, costs: &Costs, links: LinkKind) -> Result<Self> {
        let simulation = simulate(schedule, costs, links)?;
        Ok(Self::from(&[(&simulation, 1)], updates(schedule, costs)?))
    }

    /// The prediction for all replicas of a pipeline.
    ///
    /// # Errors
    /// As for [`simulate_replicas`].
    pub fn of_replicas(replicas: &Replicas, costs: &Costs, links: LinkKind) -> Result<Self> {
        let simulations = simulate_replicas(replicas, costs, links)?;
        let counts = replicas.schedules().map(|(_, count)| count);
        let all: Vec<(&Simulation, u32)> = simulations.iter().zip(counts).collect();
        Ok(Self::from(&all, updates(replicas.largest(), costs)?))
    }

    /// The same, where ranks meet at the end of a step if there is a `barrier`.
    ///
    /// # Errors
    /// As for [`Prediction::of_replicas`] and [`Prediction::without_barrier`].
    pub fn of_steps(replicas: &Replicas, costs: &Costs, links: LinkKind, barrier: bool) -> Result<Self> {
        let prediction = Self::of_replicas(replicas, costs, links)?;
        match barrier {
            true => Ok(prediction),
            false => prediction.without_barrier(replicas, costs, links),
        }
    }

    /// The same step where the ranks do not meet at its end: see [`period`]. Replicas meet anyway, so with
    /// several of them it is the same.
    ///
    /// # Errors
    /// As for [`period`].
    pub fn without_barrier(self, replicas: &Replicas, costs: &Costs, links: LinkKind) -> Result<Self> {
        if replicas.count() > 1 {
            return Ok(self);
        }
        let step = period(replicas.largest(), costs, links)?.min(self.step);
        let busy = (1.0 - self.bubble) * self.step;
        Ok(Self { step, bubble: (1.0 - busy / step).max(0.0), ..self })
    }

    /// The same step where `threads` threads share `cores` cores. It takes at least as long as all of their
    /// work on these cores.
    #[must_use]
    pub fn on_cores(self, threads: u32, cores: u32) -> Self {
        let busy = (1.0 - self.bubble) * self.step;
        let work = busy * f64::from(threads) / f64::from(cores);
        match threads > cores && work > self.step {
            true => Self { step: work, bubble: 1.0 - f64::from(cores) / f64::from(threads), ..self },
            false => self,
        }
    }

    /// The prediction from simulations, each with the number of replicas that go so, and the time of all
    /// updates of a replica.
    fn from(simulations: &[(&Simulation, u32)], updates: f64) -> Self {
        let most = |figure: fn(&Simulation) -> f64| {
            let figures = simulations.iter().map(|(simulation, _)| figure(simulation));
            figures.fold(0.0, f64::max)
        };
        let step = most(|simulation| simulation.step);
        let (mut busy, mut whole) = (0.0, 0.0);
        for (simulation, count) in simulations {
            let passes: f64 = simulation.ranks.iter().map(|rank| rank.busy).sum();
            busy += f64::from(*count) * (passes + updates);
            whole += f64::from(*count) * step * simulation.ranks.len() as f64;
        }
        Self { step, bubble: (1.0 - busy / whole).max(0.0), peak_memory: most(Simulation::peak_memory) }
    }
}

impl Exposed {
    /// What is exposed in the steps of these replicas.
    ///
    /// # Errors
    /// As for [`simulate_replicas`].
    pub fn of(replicas: &Replicas, costs: &Costs, links: LinkKind) -> Result<Self> {
        let step =
            |costs: &Costs| -> Result<f64> { Ok(Prediction::of_replicas(replicas, costs, links)?.step) };
        let whole = step(costs)?;
        // Without what delays some actions, others may come later on ordered links.
        let longer = |without: f64| (whole - without).max(0.0);
        Ok(Self {
            reductions: longer(step(&costs.clone().without_reductions())?),
            transfers: longer(step(&costs.clone().without_transfers())?),
        })
    }
}

/// The time of the updates of all ranks.
fn updates(schedule: &Schedule, costs: &Costs) -> Result<f64> {
    let stages = costs.of(schedule.placement())?;
    Ok(stages.iter().map(|stage| stage.update).sum())
}
