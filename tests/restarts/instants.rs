//! A process dies or hangs at an exact instant: in a pass, an update, a snapshot, an evaluation, a save.
//! Instants are counted, so the same one comes again. The processes are this test program, started again as
//! `member`.

use std::env;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use pipewright::fabric::{Membership, World};
use pipewright::run::{Event, Next, Run, Validation};

use super::common::recipe;
use super::failing::{Faults, How};
use super::worlds::{free_address, place};
use super::{builder, named};

const STEPS: u64 = 8;

/// When this step is done, there is a checkpoint.
const SAVED: u64 = 4;

/// So many of all instants are tried.
const TRIED: u64 = 24;

/// What a member is told: its number, where process 0 is, its folder, whether it hangs instead of dying, and
/// at which instant.
const TOLD: [&str; 5] = [
    "MEMBER",
    "MEMBER_ADDRESS",
    "MEMBER_FOLDER",
    "MEMBER_HANGS",
    "MEMBER_INSTANT",
];

/// One process of a run, if it was started as one.
#[test]
fn member() {
    let Ok(process) = env::var(TOLD[0]) else { return };
    let [address, folder, hangs, instant] = [1, 2, 3, 4].map(|index| env::var(TOLD[index]).expect("told"));
    let process: u32 = process.parse().expect("a number");
    let membership = Membership {
        process,
        replaces: true,
        ..place(2, address)
    };
    let mut faults = [Faults::default(), Faults::default()];
    let how = match hangs.parse().expect("true or false") {
        true => How::Hangs,
        false => How::Dies,
    };
    let own = Faults::everywhere(instant.parse().expect("a number"), how);
    faults[process as usize] = own.clone();
    let recipe = recipe(2, true, 3);
    let world = World::join(&membership, "the same").expect("all come");
    let builder = builder(&recipe, named("1f1b", 2, 3), &faults, 2).world(world);
    let builder = builder.stall_limit(Some(Duration::from_secs(3)));
    let mut pipeline = builder.launch().expect("it starts");
    let folder = Path::new(&folder);
    let (from, counted) = (Arc::<AtomicU64>::default(), own.clone());
    let begins = Arc::clone(&from);
    let run = Run::new(folder.join("run"))
        .steps(STEPS)
        .validate(
            Validation::new(Arc::clone(&recipe.data))
                .micro_batches(2)
                .every(2),
        )
        .save_every(2)
        .save_beside(true)
        .on(move |event| {
            if let Event::Step(report) = event
                && report.step == SAVED
            {
                begins.store(counted.calls(), Ordering::Relaxed);
            }
            Next::Continue
        });
    run.train(&mut pipeline).expect("it goes on");
    let (from, to) = (from.load(Ordering::Relaxed), own.calls());
    let hash = pipeline.weights_hash().expect("it runs");
    let text = format!("{hash} {from} {to}");
    fs::write(folder.join(process.to_string()), text).expect("a folder");
}

#[test]
fn a_process_may_die_at_any_instant() {
    let expected = recipe(2, true, 3).plain_hash(STEPS);
    let [from, to] = instants(&expected, false, &[]);
    assert!(from > 0 && to > from, "from {from} to {to}");
    for index in 0..TRIED {
        instants(&expected, false, &[from + (to - from) * index / TRIED]);
    }
    // And again when it takes its place: while its stages are built, and when it has its weights again.
    for again in [0, 10, 40, 70, 100] {
        instants(&expected, false, &[to - 1, again]);
    }
}

#[test]
fn a_process_in_which_a_rank_hangs_is_replaced_when_the_stall_limit_is_over() {
    let expected = recipe(2, true, 3).plain_hash(STEPS);
    let [from, to] = instants(&expected, true, &[]);
    instants(&expected, true, &[(from + to) / 2]);
}

/// A run of two processes, of which process 1 dies at these instants, or hangs, and is started again each
/// time. Returns from which instant on it may die, and how many there are.
fn instants(expected: &str, hangs: bool, failures: &[u64]) -> [u64; 2] {
    let folder = tempfile::tempdir().expect("a folder");
    let address = free_address();
    let start = |process: u32, instant: u64| -> Child {
        let told = [
            process.to_string(),
            address.clone(),
            folder.path().display().to_string(),
            hangs.to_string(),
            instant.to_string(),
        ];
        Command::new(env::current_exe().expect("known"))
            .args(["--exact", "instants::member", "--nocapture"])
            .envs(TOLD.into_iter().zip(told))
            .stdout(Stdio::null())
            .spawn()
            .expect("it starts")
    };
    let mut first = start(0, u64::MAX);
    for &instant in failures {
        let failed = start(1, instant).wait().expect("it ends");
        assert!(!failed.success(), "it fails at {instant}");
    }
    let mut second = start(1, u64::MAX);
    for process in [&mut first, &mut second] {
        assert!(
            process.wait().expect("it ends").success(),
            "failing at {failures:?}"
        );
    }
    let numbers = [0, 1].map(|process: u32| {
        let text = fs::read_to_string(folder.path().join(process.to_string())).expect("written");
        let mut words = text.split(' ');
        assert_eq!(
            words.next(),
            Some(expected),
            "process {process}, failing at {failures:?}"
        );
        let mut number = || words.next().and_then(|word| word.parse().ok()).expect("a number");
        [number(), number()]
    });
    numbers[1]
}
