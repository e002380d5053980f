//! A virtual world: real ranks train over links that a seed rules, with faults that it draws. Each seed ends
//! with the bits of a run without faults or with the error of its fault, and never hangs.
//!
//! `PIPEWRIGHT_SEEDS=5000` runs more seeds, and `PIPEWRIGHT_SEED=17` one: see CONTRIBUTING.md.

mod bug;
#[path = "../common/mod.rs"]
mod common;
mod divided;
mod draw;
mod end;
mod faults;
mod here;
mod judge;
mod links;
mod order;
mod processes;
mod programs;
mod settled;
mod stages;
mod stalls;
mod state;
mod story;
mod timeline;
mod trial;
mod world;

use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroU32;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{fmt, fs, thread};

use bug::Bug;
use draw::Draw;
use end::ends;
use faults::Fault;
use here::{FORWARD, Pass};
use judge::{CLIP, RATE};
use links::Weather;
use order::Order;
use pipewright::fabric::{Call, Links, Load, Parcel, Tag, Transport};
use pipewright::id::WorldRank;
use pipewright::pipeline::{Look, SyncMode};
use pipewright::plan::{Costs, Replicas};
use pipewright::schedule::Schedule;
use pipewright::stages::loss::MeanSquaredError;
use pipewright::stages::{Sequential, Tensor};
use pipewright::{Error, Pipeline, PipelineBuilder, Result};
use stages::{Model, Numbers, Updates};
use stalls::Told;
use state::Ends;
use story::{Deed, Story};
use timeline::{Timeline, What};
use world::World;

/// How many seeds run if nobody says otherwise: they take seconds.
const SEEDS: u64 = 600;

/// For each seed of training, this number of programs of ends runs. They are short.
const PROGRAMS: u64 = 5;

/// A number from the environment.
fn asked(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

fn seeds() -> u64 {
    asked("PIPEWRIGHT_SEEDS").unwrap_or(SEEDS)
}

/// Runs all seeds below this, a few at a time. The first bug is a panic.
fn run_all(seeds: u64, run: impl Fn(u64) -> Result<(), Box<Bug>> + Sync) {
    let next = AtomicU64::new(0);
    let run = || {
        while let Some(seed) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|seed| *seed < seeds) {
            if let Err(bug) = run(seed) {
                next.store(seeds, Ordering::Relaxed);
                panic!("{bug}");
            }
        }
    };
    thread::scope(|scope| {
        let threads = [0, 1, 2].map(|_| scope.spawn(run));
        let ended = threads.map(thread::ScopedJoinHandle::join);
        if let Some(panic) = ended.into_iter().find_map(Result::err) {
            std::panic::resume_unwind(panic);
        }
    });
}

#[test]
fn every_seed_ends_with_the_same_bits_or_with_the_error_of_its_fault() {
    if let Some(seed) = asked("PIPEWRIGHT_SEED") {
        let (end, timeline) = trial::run(&Story::of(seed)).unwrap_or_else(|bug| panic!("{bug}"));
        println!("{timeline}\nseed {seed}: {end:?}");
        return;
    }
    let ends = Mutex::new(BTreeMap::<String, u64>::new());
    run_all(seeds(), |seed| {
        let story = Story::of(seed);
        let (end, timeline) = trial::run(&story)?;
        let mut kinds: Vec<&str> = timeline.faults().map(Fault::kind).collect();
        kinds.sort_unstable();
        kinds.dedup();
        let mut ends = ends.lock().expect("no panic inside");
        for kind in kinds {
            *ends.entry(format!("{kind}: {end:?}")).or_default() += 1;
        }
        *ends.entry(format!("all: {end:?}")).or_default() += 1;
        if story.shards > 1 {
            *ends.entry(format!("with shards: {end:?}")).or_default() += 1;
        }
        if !story.barrier {
            *ends.entry(format!("without a barrier: {end:?}")).or_default() += 1;
        }
        if story.deeds.iter().any(|deed| matches!(deed, Deed::Recut { .. })) {
            *ends.entry(format!("with new cuts: {end:?}")).or_default() += 1;
        }
        if story.deeds.iter().any(|deed| matches!(deed, Deed::Recut { schedule: Some(_), .. })) {
            *ends.entry(format!("with new schedules: {end:?}")).or_default() += 1;
        }
        if story.sizes().nth(1).is_some() {
            *ends.entry(format!("with new shapes: {end:?}")).or_default() += 1;
        }
        Ok(())
    });
    let ends = ends.into_inner().expect("no panic inside");
    let all = ["all: Settled", "with shards: SameBits", "with shards: RightError"];
    let cuts = ["with new cuts: SameBits", "with new cuts: RightError", "with new schedules: SameBits"];
    let shapes = ["with new shapes: SameBits", "with new shapes: RightError"];
    let without = ["without a barrier: SameBits", "without a barrier: RightError"];
    for end in all.into_iter().chain(cuts).chain(shapes).chain(without) {
        assert!(seeds() < SEEDS || ends.contains_key(end), "no seed ended so: {end}");
    }
    println!("how many seeds ended in which way, by the kinds of faults that came true: {ends:#?}");
    let seen = |kind: &&str| ends.keys().any(|seen| seen.starts_with(kind));
    let unseen: Vec<_> = Fault::KINDS.into_iter().filter(|kind| !seen(kind)).collect();
    assert!(seeds() < SEEDS || unseen.is_empty(), "no seed has shown {unseen:?}");
}

#[test]
fn ends_keep_their_promises_in_every_program() {
    if let Some(seed) = asked("PIPEWRIGHT_PROGRAM") {
        let timeline = programs::run(seed).unwrap_or_else(|bug| panic!("{bug}"));
        println!("{timeline}");
        return;
    }
    run_all(PROGRAMS * seeds(), |seed| programs::run(seed).map(drop));
}

#[test]
fn processes_that_die_are_replaced_and_the_bits_stay_the_same() {
    if let Some(seed) = asked("PIPEWRIGHT_PROCESSES") {
        let story = processes::Story::of(seed);
        let (end, timeline) = processes::run(&story).unwrap_or_else(|bug| panic!("{bug}"));
        println!("{timeline}\nseed {seed}: {end:?}");
        return;
    }
    let ends = Mutex::new(BTreeMap::<String, u64>::new());
    run_all(seeds(), |seed| {
        let story = processes::Story::of(seed);
        let (end, timeline) = processes::run(&story)?;
        let mut ends = ends.lock().expect("no panic inside");
        if story.shards > 1 && timeline.deaths().next().is_some() {
            *ends.entry(format!("with shards and deaths: {end:?}")).or_default() += 1;
        }
        let end = format!("{} deaths: {end:?}", timeline.deaths().count());
        *ends.entry(end).or_default() += 1;
        for from in [processes::FROM_A_SNAPSHOT, processes::ANEW] {
            *ends.entry(format!("a process {from}")).or_default() += timeline.said(from);
        }
        Ok(())
    });
    let ends = ends.into_inner().expect("no panic inside");
    println!("how many runs of several processes ended in which way: {ends:#?}");
    let has = |what: &str| ends.get(what).is_some_and(|times| *times > 0);
    let from_a_snapshot = format!("a process {}", processes::FROM_A_SNAPSHOT);
    assert!(
        seeds() < SEEDS || has("2 deaths: SameBits") && has(&from_a_snapshot),
        "no run has survived two deaths, or none from a snapshot"
    );
    assert!(seeds() < SEEDS || has("with shards and deaths: SameBits"), "no shard was replaced");
}

#[test]
fn a_pipeline_needs_the_ends_of_all_its_ranks() {
    let story = Story::of(0);
    let world = World::new(100, 0, story.weather, Vec::new());
    let error = trial::builder(&story, &world, &Arc::default(), &Told::default())
        .ends(move |mesh, room| end::ends(&world, mesh.world_size() + 1, room))
        .launch()
        .expect_err("there is one end too many");
    assert!(matches!(error, Error::Launch(_)));
    assert_eq!(
        error.to_string(),
        format!(
            "the pipeline needs the ends of its {} ranks, in rank order, and was given others",
            story.world()
        )
    );
}

#[test]
fn a_seed_has_one_timeline() {
    for seed in 0..20 {
        let train = || trial::run(&Story::of(seed)).map(|(_, timeline)| timeline.to_string());
        let program = || programs::run(seed).map(|timeline| timeline.to_string());
        let several =
            || processes::run(&processes::Story::of(seed)).map(|(_, timeline)| timeline.to_string());
        for run in [&train as &dyn Fn() -> _, &program, &several] {
            let [first, second] = [0, 1].map(|_| run().unwrap_or_else(|bug| panic!("{bug}")));
            assert!(first == second, "seed {seed} has two timelines");
        }
    }
}
