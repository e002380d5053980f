//! Compares the time of a run with the simulator's prediction, for every schedule, on stages that only sleep.
//!
//! Sleeping leaves the cores free, so more ranks than cores keep their times. The last two columns show the
//! largest errors of a rank's idle and busy times, as shares of the makespan. If busy times are wrong, ranks
//! have waited for a core: the machine has too much else to do.

mod support;

use pipewright::plan::{Costs, StageCost};
use pipewright::plan::{RankSimulation, simulate};
use pipewright::schedule::{LinkKind, Schedule};
use pipewright::{RankReport, Result};

/// Measured steps, after one that is not measured.
const STEPS: usize = 3;

/// The seconds that a rank takes for a micro-batch.
const SHARE: StageCost = StageCost {
    forward: 0.040,
    backward_input: 0.050,
    backward_weight: 0.030,
    saved: 1.0,
    pending: 0.5,
    ..StageCost::NOTHING
};

fn main() -> Result<()> {
    println!(
        "a rank's share takes {} ms forward, {} ms backward-input, {} ms backward-weight; \
         median of {STEPS} steps",
        1e3 * SHARE.forward,
        1e3 * SHARE.backward_input,
        1e3 * SHARE.backward_weight
    );
    println!(
        "{:<18} {:>5} {:>4} {:>12} {:>12} {:>7} {:>17} {:>10} {:>10}",
        "schedule",
        "ranks",
        "m",
        "simulated s",
        "measured s",
        "ratio",
        "bubble sim, run",
        "idle off",
        "busy off"
    );
    let mut worst: f64 = 1.0;
    for (ranks, micro_batches) in [(8, 16), (16, 24), (8, 5)] {
        for name in Schedule::names() {
            let ratio = compare(name, ranks, micro_batches)?;
            if (ratio - 1.0).abs() > (worst - 1.0).abs() {
                worst = ratio;
            }
        }
    }
    println!("furthest off: {:+.2} %", 100.0 * (worst - 1.0));
    Ok(())
}

/// Prints a line, and returns measured / simulated.
fn compare(name: &str, ranks: u32, micro_batches: u32) -> Result<f64> {
    let costs = Costs::share(SHARE, 0.0)?;
    let schedule = Schedule::make(name, ranks, None, micro_batches, &costs)?.in_turn();
    let simulation = simulate(&schedule, &costs, LinkKind::Buffered)?;
    let mut pipeline = support::builder(schedule.clone(), costs.of(schedule.placement())?).launch()?;
    pipeline.step()?;
    let mut reports = (0..STEPS).map(|_| pipeline.step()).collect::<Result<Vec<_>>>()?;
    reports.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    let report = &reports[STEPS / 2];
    let ratio = report.seconds / simulation.makespan;
    let off = |simulated: fn(&RankSimulation) -> f64, measured: fn(&RankReport) -> f64| {
        let ranks = simulation.ranks.iter().zip(&report.ranks);
        let off = ranks.map(|(ours, run)| (measured(run) - simulated(ours)).abs());
        100.0 * off.fold(0.0, f64::max) / simulation.makespan
    };
    println!(
        "{name:<18} {ranks:>5} {micro_batches:>4} {:>12.4} {:>12.4} {ratio:>7.4} {:>7.2} {:>7.2} % \
         {:>8.2} % {:>8.2} %",
        simulation.makespan,
        report.seconds,
        100.0 * simulation.bubble_makespan,
        100.0 * report.bubble(),
        off(|ours| ours.warm_up + ours.waiting + ours.drain, |run| run.waiting),
        off(|ours| ours.busy, |run| run.busy)
    );
    Ok(ratio)
}
