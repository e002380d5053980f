//! The cost of the engine itself: the time for each action when the stages do nothing.

mod support;

use std::time::{Duration, Instant};

use pipewright::id::Rank;
use pipewright::plan::StageCost;
use pipewright::schedule::Schedule;

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// The median time of a step, and the number of actions of the busiest rank.
fn step(schedule: Schedule, traced: bool) -> pipewright::Result<(Duration, usize)> {
    let actions = (0..schedule.ranks()).map(|rank| schedule.actions(Rank(rank)).len()).max().unwrap_or(0);
    let stages = vec![StageCost::NOTHING; schedule.stages() as usize];
    let mut pipeline = support::builder(schedule, stages).launch()?;
    let times = (0..220).map(|_| {
        let started = Instant::now();
        let step = if traced { pipeline.step_traced().map(|_| ()) } else { pipeline.step().map(|_| ()) };
        step.map(|()| started.elapsed())
    });
    let times = times.collect::<pipewright::Result<Vec<_>>>()?;
    Ok((median(times[20..].to_vec()), actions))
}

fn main() -> pipewright::Result<()> {
    println!("2 ranks, stages that do nothing: median step, divided by the actions of one rank");
    for (name, traced) in [("gpipe", false), ("1f1b", false), ("1f1b", true)] {
        for micro_batches in [1, 8, 64, 256] {
            let (time, actions) = step(Schedule::named(name, 2, micro_batches)?, traced)?;
            let microseconds = 1e6 * time.as_secs_f64();
            let each = microseconds / actions as f64;
            let traced = if traced { "traced" } else { "" };
            println!(
                "{name:>6}{traced:>7}, {micro_batches:>3} micro-batches: {microseconds:>7.0} us a step, \
                 {each:>5.2} us an action"
            );
        }
    }
    Ok(())
}
