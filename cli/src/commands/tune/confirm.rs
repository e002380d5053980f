//! Runs the settings with the best predictions.

use super::grid::{Found, Grid};
use crate::Result;
use crate::commands::stalls::ShowsStalls;
use crate::compose::{self, PipelinePlan};
use pipewright::plan::median;

/// How often each is run. They take turns, so that a disturbance of the machine affects all of them.
const ROUNDS: usize = 3;

/// Steps of a run that count, after one that does not.
const STEPS: usize = 4;

/// Runs the `top` best settings of each number type for some steps, in turn, and records the median of their
/// times. If a device has too little memory for one, it is removed, and the next one takes its place.
pub(super) fn run(grid: &mut Grid, top: usize) -> Result<()> {
    let mut times: Vec<Vec<f64>> = vec![Vec::new(); grid.found.len()];
    for round in 1..=ROUNDS {
        let mut place = 0;
        while place < grid.found.len() {
            if !grid.is_of_top(place, top) {
                place += 1;
                continue;
            }
            let found = &grid.found[place];
            eprintln!("round {round} of {ROUNDS}: running {}, {}", place + 1, found.in_words());
            match steps(found) {
                Ok(seconds) => {
                    times[place].extend(seconds);
                    place += 1;
                }
                Err(error) if error.is_out_of_memory() => {
                    times.remove(place);
                    let found = grid.found.remove(place);
                    grid.leave_out(&found.in_words(), error);
                }
                Err(error) => return Err(error),
            }
        }
    }
    for (found, times) in grid.found.iter_mut().zip(times) {
        found.measured = median(times);
    }
    Ok(())
}

/// The seconds of each step.
fn steps(found: &Found) -> Result<Vec<f64>> {
    let (config, candidate) = (&found.config, &found.candidate);
    let data = compose::data(config)?;
    data.assume_no_references();
    let shows = ShowsStalls::new();
    let plan = PipelinePlan::of(candidate.counts.clone(), candidate.replicas.clone());
    let mut pipeline =
        compose::launch_with_listener(config, &data, &plan, None, shows.listener(), |_, _| Ok(()))?;
    // Where steps have no barrier, only steps that nothing separates show it.
    pipeline.steps_until(1 + STEPS as u64);
    pipeline.step()?;
    let times = (0..STEPS).map(|_| Ok(pipeline.step()?.seconds));
    times.collect()
}
