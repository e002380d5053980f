//! How long schedules take to make, lower and check, and to simulate.

use std::time::Instant;

use pipewright::plan::simulate;
use pipewright::schedule::{Costs, Links, Schedule};

fn main() {
    for (name, ranks, micro_batches) in [
        ("gpipe", 64, 256),
        ("1f1b", 64, 256),
        ("gpipe", 512, 2048),
        ("1f1b", 512, 2048),
    ] {
        let schedule = Schedule::named(name, ranks, micro_batches).expect("every size is accepted");
        let made = median(|| Schedule::named(name, ranks, micro_batches).expect("every size is accepted"));
        let simulated =
            median(|| simulate(&schedule, &Costs::default(), Links::Ordered).expect("ordered is safe"));
        println!(
            "{name} {ranks} ranks x {micro_batches}: made and checked {made:.1} ms, simulated {simulated:.1} ms"
        );
    }
}

/// The median of 5 runs, in milliseconds.
fn median<T>(mut run: impl FnMut() -> T) -> f64 {
    let mut times = [(); 5].map(|()| {
        let start = Instant::now();
        std::hint::black_box(run());
        start.elapsed().as_secs_f64() * 1e3
    });
    times.sort_by(f64::total_cmp);
    times[2]
}
