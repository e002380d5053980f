//! A process dies or hangs at an exact instant: in a pass, an update, a snapshot, an evaluation, a save.
//! Instants are counted, so the same one comes again. The processes are this test program, started again as
//! `member`.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use std::{env, fs};

use pipewright::run::{Event, Next, Run, Validation};

use super::common::*;
use super::failing::{Failing, Faults, How};
use super::worlds::{free_address, place};
use super::*;
use super::{builder, named, partly_frozen};

const STEPS: u64 = 8;

/// When this step is done, there is a checkpoint.
const SAVED: u64 = 4;

/// How many of all instants are tried.
const TRIED: u64 = 24;

/// What a member is told: its number, where process 0 is, its folder, whether it hangs instead of dying, at
/// which instant, and what is trained.
const TOLD: [&str; 6] =
    ["MEMBER", "MEMBER_ADDRESS", "MEMBER_FOLDER", "MEMBER_HANGS", "MEMBER_INSTANT", "MEMBER_TRAINS"];

/// What is trained.
#[derive(Clone, Copy, Debug, PartialEq)]
enum What {
    All,
    /// Not the first block, which has the weights that its builder makes.
    NotFirst,
    /// Not the first block, whose weights are from a checkpoint.
    NotFirstOfOthers,
    /// All, by two shards of one rank.
    Shards,
}

impl What {
    const ALL: [Self; 4] = [Self::All, Self::NotFirst, Self::NotFirstOfOthers, Self::Shards];

    fn recipe(self, seed: u64) -> Recipe {
        match self {
            Self::All => recipe(2, true, 3),
            Self::Shards => Recipe { shards: 2, shard_groups: 2, ..recipe(2, true, 3) },
            Self::NotFirst | Self::NotFirstOfOthers => {
                partly_frozen(true, seed, |name| name.starts_with("h.0.") || name == "wte.weight")
            }
        }
    }

    fn schedule(self) -> Schedule {
        named("1f1b", if self == Self::Shards { 1 } else { 2 }, 3)
    }

    /// Saves the weights of another model, if the training begins with them.
    fn save_others(self, folder: &Path) {
        if self == Self::NotFirstOfOthers {
            let recipe = self.recipe(1);
            let others = builder(&recipe, named("1f1b", 2, 3), &[], 2).launch();
            others.expect("it starts").save(folder.join("others")).expect("it saves");
        }
    }

    /// Loads the weights of another model, if the training begins with them.
    fn load(self, pipeline: &mut Pipeline<Failing>, folder: &Path) {
        if self == Self::NotFirstOfOthers && pipeline.rejoined().is_none() {
            pipeline.load(folder.join("others")).expect("it loads");
        }
    }
}

/// One process of a run, if it was started as one.
#[test]
fn member() {
    let Ok(process) = env::var(TOLD[0]) else { return };
    let told = |index: usize| env::var(TOLD[index]).expect("told");
    let [address, folder, hangs, instant, what] = [1, 2, 3, 4, 5].map(told);
    let what = What::ALL[what.parse::<usize>().expect("a number")];
    let process: u32 = process.parse().expect("a number");
    let membership = Membership { process, replaces: true, ..place(2, address) };
    let how = match hangs.parse().expect("true or false") {
        true => How::Hangs,
        false => How::Dies,
    };
    let own = Faults::everywhere(instant.parse().expect("a number"), how);
    let recipe = what.recipe(2);
    let world = World::join(&membership, "the same").expect("all come");
    // It has one rank.
    let faults = [own.clone(), own.clone()];
    let builder = builder(&recipe, what.schedule(), &faults, 2).world(world);
    let builder = builder.stall_limit(Some(Duration::from_secs(3)));
    let mut pipeline = builder.launch().expect("it starts");
    let folder = Path::new(&folder);
    what.load(&mut pipeline, folder);
    let (from, counted) = (Arc::<AtomicU64>::default(), own.clone());
    let begins = Arc::clone(&from);
    let run = Run::new(folder.join("run"))
        .steps(STEPS)
        .validate(Validation::new(Arc::clone(&recipe.data)).micro_batches(2).every(2))
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
    let run = Failures::of(What::All, How::Dies);
    let [from, to] = run.instants(&[]);
    assert!(from > 0 && to > from, "from {from} to {to}");
    for index in 0..TRIED {
        run.instants(&[from + (to - from) * index / TRIED]);
    }
    // And again when it takes its place: while its stages are built, and when it has its weights again.
    for again in [0, 10, 40, 70, 100] {
        run.instants(&[to - 1, again]);
    }
}

/// The other shard waits for it, and goes back to the snapshot with it.
#[test]
fn a_process_with_a_shard_may_die_at_any_instant() {
    let run = Failures::of(What::Shards, How::Dies);
    let [from, to] = run.instants(&[]);
    assert!(from > 0 && to > from, "from {from} to {to}");
    for index in 0..6 {
        run.instants(&[from + (to - from) * index / 6]);
    }
    run.instants(&[to - 1, 40]);
}

/// They are in no snapshot if they are as they were built.
#[test]
fn frozen_weights_are_there_again_when_a_process_has_died() {
    for what in [What::NotFirst, What::NotFirstOfOthers] {
        let run = Failures::of(what, How::Dies);
        let [from, to] = run.instants(&[]);
        for index in 0..3 {
            run.instants(&[from + (to - from) * index / 3]);
        }
        // And again after a snapshot of the process that has taken its place.
        run.instants(&[from, 3 * (to - from) / 4]);
    }
}

#[test]
fn a_process_in_which_a_rank_hangs_is_replaced_when_the_stall_limit_is_over() {
    let run = Failures::of(What::All, How::Hangs);
    let [from, to] = run.instants(&[]);
    run.instants(&[(from + to) / 2]);
}

/// Runs of two processes, in which process 1 dies or hangs.
struct Failures {
    what: What,
    how: How,
    /// The hash of the weights at the end.
    expected: String,
}

impl Failures {
    fn of(what: What, how: How) -> Self {
        let recipe = what.recipe(2);
        if matches!(what, What::All | What::Shards) {
            let expected = recipe.plain_hash(STEPS);
            return Self { what, how, expected };
        }
        let folder = tempfile::tempdir().expect("a folder");
        what.save_others(folder.path());
        let mut alone = builder(&recipe, named("1f1b", 2, 3), &[], 2).launch().expect("it starts");
        what.load(&mut alone, folder.path());
        (0..STEPS).for_each(|_| drop(alone.step().expect("it trains")));
        let expected = alone.weights_hash().expect("it runs");
        Self { what, how, expected }
    }

    /// Process 1 fails at these instants and is started again each time. Returns from which instant on it may
    /// fail, and how many there are.
    fn instants(&self, failures: &[u64]) -> [u64; 2] {
        let folder = tempfile::tempdir().expect("a folder");
        self.what.save_others(folder.path());
        let Self { what, how, expected } = self;
        let what = What::ALL.iter().position(|one| one == what).expect("one of all");
        let address = free_address();
        let start = |process: u32, instant: u64| -> Child {
            let told = [
                process.to_string(),
                address.clone(),
                folder.path().display().to_string(),
                (*how == How::Hangs).to_string(),
                instant.to_string(),
                what.to_string(),
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
            assert!(process.wait().expect("it ends").success(), "failing at {failures:?}");
        }
        let numbers = [0, 1].map(|process: u32| {
            let text = fs::read_to_string(folder.path().join(process.to_string())).expect("written");
            let mut words = text.split(' ');
            assert_eq!(words.next(), Some(expected.as_str()), "process {process}, failing at {failures:?}");
            let mut number = || words.next().and_then(|word| word.parse().ok()).expect("a number");
            [number(), number()]
        });
        numbers[1]
    }
}
