//! The time of a step when steps follow each other without a barrier.

use crate::Result;
use crate::plan::{Clock, Costs};
use crate::schedule::{LinkKind, Schedule};

/// How many steps are played at most.
const STEPS: usize = 256;

/// The relative difference below which the period counts as found.
const CLOSE: f64 = 1e-9;

/// The long-run time from one step to the next when the ranks do not meet at its end. Each rank updates its
/// parameters after its last pass and starts the next step at once. The zero-bubble papers call this an
/// optimizer without synchronization ([arXiv 2401.10241](https://arxiv.org/abs/2401.10241), section 4).
///
/// The period is at least the work and the update of any one rank. It is at most
/// [`Simulation::step`](crate::plan::Simulation::step).
///
/// Steps are played until all ranks have moved on by the same time over some number of steps. From there on
/// the pattern repeats. It may not have settled after 256 steps. The result is then an upper bound, too large
/// by at most a 256th of the largest time difference between ranks.
///
/// # Errors
/// As [`simulate`](crate::plan::simulate).
pub fn period(schedule: &Schedule, costs: &Costs, links: LinkKind) -> Result<f64> {
    let mut clock = Clock::new(schedule, costs, links)?;
    let mut past: Vec<Vec<f64>> = vec![clock.fronts().collect()];
    let (mut least, mut most) = (0.0, f64::INFINITY);
    for _ in 0..STEPS {
        clock.step(|_| ())?;
        let now: Vec<_> = clock.fronts().collect();
        // In a system of max and + only, the slowest and the fastest component bound the long-run growth.
        for (before, steps) in past.iter().rev().zip(1..) {
            let moved = now.iter().zip(before).map(|(now, before)| (now - before) / f64::from(steps));
            let (low, high) = moved.fold((f64::INFINITY, 0.0), |(low, high): (f64, f64), moved| {
                (low.min(moved), high.max(moved))
            });
            (least, most) = (f64::max(least, low), f64::min(most, high));
        }
        if most - least <= CLOSE * most {
            break;
        }
        past.push(now);
    }
    Ok(most)
}
