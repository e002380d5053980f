//! Whether a run takes the time that the simulator says: every schedule, on stages that only sleep.
//!
//! Sleeping leaves the cores free, so that more ranks than cores keep time.

mod support;

use pipewright::Result;
use pipewright::plan::{Simulation, simulate};
use pipewright::schedule::{Costs, Links, Schedule, StageCost};

/// Steps that are measured, after one that is not.
const STEPS: usize = 3;

/// Seconds that a micro-batch takes a rank.
const SHARE: StageCost = StageCost {
    forward: 0.040,
    backward_input: 0.050,
    backward_weight: 0.030,
    update: 0.0,
    saved: 1.0,
    pending: 0.5,
};

fn main() -> Result<()> {
    println!(
        "a rank's share takes {} ms forward, {} ms backward-input, {} ms backward-weight; median of {STEPS} steps",
        1e3 * SHARE.forward,
        1e3 * SHARE.backward_input,
        1e3 * SHARE.backward_weight
    );
    println!(
        "{:<18} {:>5} {:>4} {:>12} {:>12} {:>7} {:>17} {:>10}",
        "schedule", "ranks", "m", "simulated s", "measured s", "ratio", "bubble sim, run", "rank idle"
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

/// Prints a line and gives measured / simulated.
fn compare(name: &str, ranks: u32, micro_batches: u32) -> Result<f64> {
    let costs = Costs::share(SHARE, 0.0)?;
    let schedule = Schedule::make(name, ranks, None, micro_batches, &costs)?;
    let simulation = simulate(&schedule, &costs, Links::Buffered)?;
    let mut pipeline = support::pipeline(schedule.clone(), costs.of(schedule.placement())?)?;
    pipeline.step()?;
    let mut reports = (0..STEPS).map(|_| pipeline.step()).collect::<Result<Vec<_>>>()?;
    reports.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    let report = &reports[STEPS / 2];
    let ratio = report.seconds / simulation.makespan;
    let waiting: Vec<_> = report.ranks.iter().map(|rank| rank.waiting).collect();
    println!(
        "{name:<18} {ranks:>5} {micro_batches:>4} {:>12.4} {:>12.4} {ratio:>7.4} {:>7.2} {:>7.2} % {:>8.2} %",
        simulation.makespan,
        report.seconds,
        100.0 * simulation.bubble_makespan,
        100.0 * report.bubble(),
        100.0 * furthest(&simulation, &waiting)
    );
    Ok(ratio)
}

/// How far a rank's idle time is off at the most, as a share of the makespan.
fn furthest(simulation: &Simulation, waiting: &[f64]) -> f64 {
    let idle = simulation
        .ranks
        .iter()
        .map(|rank| rank.warm_up + rank.waiting + rank.drain);
    let off = idle.zip(waiting).map(|(idle, waiting)| (waiting - idle).abs());
    off.fold(0.0, f64::max) / simulation.makespan
}
