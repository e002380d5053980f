//! Step after step without a barrier.

use crate::Result;
use crate::plan::{Clock, Costs};
use crate::schedule::{Links, Schedule};

/// How many steps are played at most.
const STEPS: usize = 256;

/// How closely the period is known when it counts as found.
const CLOSE: f64 = 1e-9;

/// The time from a step to the next, in the long run, when the ranks do not meet at its end: each updates its parameters
/// after its last pass and goes on with the next step at once (the zero-bubble papers' optimizer without
/// synchronization, [arXiv 2401.10241](https://arxiv.org/abs/2401.10241), section 4).
///
/// No shorter than the work and the update of any one rank, no longer than [`Simulation::step`](crate::plan::Simulation::step).
///
/// Steps are played until all ranks have moved on by the same time over some number of steps: from there on it repeats.
/// Where ranks take turns at holding each other up for long it may not have settled after 256 steps; then this is the
/// most that it can be, too much by a 256th of the time by which ranks are apart at the most.
///
/// # Errors
/// As [`simulate`](crate::plan::simulate).
pub fn period(schedule: &Schedule, costs: &Costs, links: Links) -> Result<f64> {
    let mut clock = Clock::new(schedule, costs, links)?;
    let mut past: Vec<Vec<f64>> = vec![clock.fronts().collect()];
    let (mut least, mut most) = (0.0, f64::INFINITY);
    for _ in 0..STEPS {
        clock.step(|_| ())?;
        let now: Vec<_> = clock.fronts().collect();
        // In a system of max and + only, the slowest and the fastest of any state enclose its growth in the long run.
        for (before, steps) in past.iter().rev().zip(1..) {
            let moved = now
                .iter()
                .zip(before)
                .map(|(now, before)| (now - before) / f64::from(steps));
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
