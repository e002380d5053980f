//! A virtual world: real ranks train over links that a seed rules, with faults that it draws. Each seed ends
//! with the bits of a run without faults or with the error of its fault, and never hangs.
//!
//! `PIPEWRIGHT_SEEDS=5000` runs more seeds, and `PIPEWRIGHT_SEED=17` one: see CONTRIBUTING.md.

#[path = "../common/mod.rs"]
mod common;
mod draw;
mod end;
mod faults;
mod here;
mod links;
mod stages;
mod story;
mod timeline;
mod trial;
mod world;

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use story::Story;
use trial::End;

/// How many seeds run if nobody says otherwise: about twenty seconds on two cores.
const SEEDS: u64 = 200;

/// A number from the environment.
fn asked(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name}={text} is no number")),
    )
}

#[test]
fn every_seed_ends_with_the_same_bits_or_with_the_error_of_its_fault() {
    if let Some(seed) = asked("PIPEWRIGHT_SEED") {
        let (end, timeline) = trial::run(&Story::of(seed)).unwrap_or_else(|bug| panic!("{bug}"));
        println!("{timeline}\nseed {seed}: {end:?}");
        return;
    }
    let seeds = asked("PIPEWRIGHT_SEEDS").unwrap_or(SEEDS);
    let (next, same) = (AtomicU64::new(0), AtomicU64::new(0));
    let run = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds {
                return;
            }
            let (end, _) = trial::run(&Story::of(seed)).unwrap_or_else(|bug| panic!("{bug}"));
            same.fetch_add(u64::from(end == End::SameBits), Ordering::Relaxed);
        }
    };
    thread::scope(|scope| {
        let threads = [0, 1, 2].map(|_| scope.spawn(run));
        for thread in threads {
            if let Err(panic) = thread.join() {
                next.store(seeds, Ordering::Relaxed);
                std::panic::resume_unwind(panic);
            }
        }
    });
    println!(
        "{seeds} seeds, {} with the same bits, the others with an error",
        same.into_inner()
    );
}

#[test]
fn a_seed_has_one_timeline() {
    for seed in 0..10 {
        let [first, second] = [0, 1].map(|_| {
            let (_, timeline) = trial::run(&Story::of(seed)).unwrap_or_else(|bug| panic!("{bug}"));
            timeline.to_string()
        });
        assert!(first == second, "seed {seed}: two timelines");
    }
}
