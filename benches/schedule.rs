//! How much time and memory schedules take: to make (with lowering and checking) and to simulate.

use std::time::Instant;

use pipewright::plan::Costs;
use pipewright::plan::{period, simulate};
use pipewright::schedule::{LinkKind, Schedule};

fn main() {
    println!(
        "{:<18} {:>5} {:>5} {:>6} {:>10} {:>11} {:>13} {:>10} {:>9}",
        "schedule", "ranks", "m", "chunks", "actions", "made ms", "simulated ms", "period ms", "peak MiB"
    );
    for (ranks, micro_batches) in [(64, 512), (512, 2048)] {
        for name in Schedule::names() {
            // Two stages per rank if the schedule allows it.
            let two = Schedule::chunks(name).is_ok_and(|chunks| chunks.contains(&2));
            measure(name, ranks, two.then_some(2), micro_batches);
        }
    }
}

/// Prints a line if there is such a schedule. The peak memory includes all earlier lines.
fn measure(name: &str, ranks: u32, chunks: Option<u32>, micro_batches: u32) {
    let costs = Costs::default();
    let start = Instant::now();
    let Ok(schedule) = Schedule::make(name, ranks, chunks, micro_batches, &costs) else {
        return;
    };
    let made = milliseconds(start);
    let actions: usize = (0..ranks).map(|rank| schedule.actions(pipewright::id::Rank(rank)).len()).sum();
    let start = Instant::now();
    simulate(&schedule, &costs, LinkKind::Ordered).expect("one made from passes holds on any links");
    let simulated = milliseconds(start);
    let start = Instant::now();
    period(&schedule, &costs, LinkKind::Buffered).expect("one made from passes holds on any links");
    let periodic = milliseconds(start);
    let chunks = schedule.stages() / ranks;
    println!(
        "{name:<18} {ranks:>5} {micro_batches:>5} {chunks:>6} {actions:>10} {made:>11.1} {simulated:>13.1} \
         {periodic:>10.1} {:>9.0}",
        peak_mebibytes()
    );
}

fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}

/// The process's peak memory, if the system reports it.
fn peak_mebibytes() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kibibytes = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<f64>().ok());
    kibibytes.map_or(f64::NAN, |kibibytes| kibibytes / 1024.0)
}
