//! A process dies at an exact instant: in a pass, an update, a snapshot, an evaluation, a save. Instants are
//! counted, so the same one comes again. The processes are this test program, started again as `member`.

use std::env;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pipewright::fabric::{Membership, World};
use pipewright::run::{Event, Next, Run, Validation};

use super::common::recipe;
use super::failing::Faults;
use super::worlds::{free_address, place};
use super::{builder, named};

const STEPS: u64 = 8;

/// When this step is done, there is a checkpoint.
const SAVED: u64 = 4;

/// So many of all instants are tried.
const TRIED: u64 = 24;

/// What a member is told: its number, where process 0 is, its folder, and the instant at which it dies.
const TOLD: [&str; 4] = ["MEMBER", "MEMBER_ADDRESS", "MEMBER_FOLDER", "MEMBER_DIES_AT"];

/// One process of a run, if it was started as one.
#[test]
fn member() {
    let Ok(process) = env::var(TOLD[0]) else { return };
    let [address, folder, dies_at] = [1, 2, 3].map(|index| env::var(TOLD[index]).expect("told"));
    let process: u32 = process.parse().expect("a number");
    let membership = Membership {
        process,
        replaces: true,
        ..place(2, address)
    };
    let mut faults = [Faults::default(), Faults::default()];
    let own = Faults::dying_at(dies_at.parse().expect("a number"));
    faults[process as usize] = own.clone();
    let recipe = recipe(2, true, 3);
    let world = World::join(&membership, "the same").expect("all come");
    let builder = builder(&recipe, named("1f1b", 2, 3), &faults, 2).world(world);
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
    let [from, to] = instants(&expected, &[]);
    assert!(from > 0 && to > from, "from {from} to {to}");
    for index in 0..TRIED {
        instants(&expected, &[from + (to - from) * index / TRIED]);
    }
    // And again when it takes its place: while its stages are built, and when it has its weights again.
    for again in [0, 10, 40, 70, 100] {
        instants(&expected, &[to - 1, again]);
    }
}

/// A run of two processes, of which process 1 dies at these instants and is started again each time. Returns
/// from which instant on it may die, and how many there are.
fn instants(expected: &str, deaths: &[u64]) -> [u64; 2] {
    let folder = tempfile::tempdir().expect("a folder");
    let address = free_address();
    let start = |process: u32, dies_at: u64| -> Child {
        let told = [
            process.to_string(),
            address.clone(),
            folder.path().display().to_string(),
            dies_at.to_string(),
        ];
        Command::new(env::current_exe().expect("known"))
            .args(["--exact", "instants::member", "--nocapture"])
            .envs(TOLD.into_iter().zip(told))
            .stdout(Stdio::null())
            .spawn()
            .expect("it starts")
    };
    let mut first = start(0, u64::MAX);
    for &dies_at in deaths {
        let died = start(1, dies_at).wait().expect("it ends");
        assert!(!died.success(), "it dies at {dies_at}");
    }
    let mut second = start(1, u64::MAX);
    for process in [&mut first, &mut second] {
        assert!(process.wait().expect("it ends").success(), "dying at {deaths:?}");
    }
    let numbers = [0, 1].map(|process: u32| {
        let text = fs::read_to_string(folder.path().join(process.to_string())).expect("written");
        let mut words = text.split(' ');
        assert_eq!(
            words.next(),
            Some(expected),
            "process {process}, dying at {deaths:?}"
        );
        let mut number = || words.next().and_then(|word| word.parse().ok()).expect("a number");
        [number(), number()]
    });
    numbers[1]
}
