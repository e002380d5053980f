//! The best few by prediction, run.

use super::grid::Found;
use crate::Result;
use crate::cli::train::launch;
use crate::schedule::median;

/// How often each is run, in turn: what disturbs the machine disturbs all.
const ROUNDS: usize = 3;

/// Steps of a run that count, after one that does not.
const STEPS: usize = 4;

/// Runs each for some steps, in turn, and notes the middle of their times.
pub(super) fn run(found: &mut [Found]) -> Result<()> {
    let mut times = vec![Vec::new(); found.len()];
    for round in 1..=ROUNDS {
        for (place, (found, times)) in (1..).zip(found.iter().zip(&mut times)) {
            eprintln!("round {round} of {ROUNDS}: running {place}, {}", found.in_words());
            let (config, candidate) = (&found.config, &found.candidate);
            let stages = config.partitioned_into(&candidate.counts)?;
            let mut pipeline = launch(config, &config.data()?, candidate.schedule.clone(), stages, None)?;
            pipeline.step()?;
            for _ in 0..STEPS {
                times.push(pipeline.step()?.seconds);
            }
        }
    }
    for (found, times) in found.iter_mut().zip(times) {
        found.measured = median(times);
    }
    Ok(())
}
