//! Checkpoints that are written while the next steps run.

use std::ffi::OsString;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};

use pipewright::SyncMode;

use super::*;
use crate::folders::names;
use crate::worlds::in_processes;

/// The files of a checkpoint.
fn files(place: &Path) -> BTreeMap<OsString, Vec<u8>> {
    let entries = fs::read_dir(place).expect("it is there");
    let path = |entry: std::io::Result<fs::DirEntry>| entry.expect("an entry").path();
    let named = |path: PathBuf| {
        let bytes = fs::read(&path).expect("a file");
        (path.file_name().expect("a name").to_owned(), bytes)
    };
    entries.map(path).map(named).collect()
}

/// Saves after two steps, by both ways, and trains on while the second is written. Both have the same bytes.
#[track_caller]
fn both_ways_are_equal(pipeline: &mut Pipeline<Sequential>, folder: &Path, steps: u64) {
    let [whole, beside] = ["whole", "beside"].map(|name| folder.join(name));
    for round in 0..2 {
        train(pipeline, steps);
        pipeline.save(&whole).expect("it is saved");
        pipeline.save_beside(&beside).expect("it is copied");
        assert!(pipeline.is_saving());
        pipeline.step().expect("a step");
        let told = pipeline.saved().expect("it is written");
        pipeline.step().expect("a step");
        let waited = pipeline.wait_until_saved().expect("it is written");
        assert_eq!(told.or(waited), Some(beside.clone()), "told once");
        assert!(!pipeline.is_saving());
        assert_eq!(pipeline.wait_until_saved().expect("none is on its way"), None);
        assert!(files(&whole) == files(&beside), "round {round}");
        let step = Checkpoint::open(&beside).expect("whole").step();
        assert_eq!(step, pipeline.next_step() - 2);
    }
}

#[test]
fn what_is_written_beside_steps_has_the_bytes_of_a_save_at_that_step() {
    for (stages, schedule, tied) in [(1, "gpipe", false), (2, "1f1b", true), (4, "zb-h1", true)] {
        for steps in [0, 2] {
            let folder = tempfile::tempdir().expect("a folder");
            let mut pipeline = recipe(3, tied, 4).pipeline(stages, schedule);
            both_ways_are_equal(&mut pipeline, folder.path(), steps);
        }
    }
}

#[test]
fn replicas_sharded_optimizers_servers_and_threads_write_the_same_bytes_beside_steps() {
    for (sharded, sync) in
        [(false, SyncMode::Reduce), (true, SyncMode::Reduce), (false, SyncMode::Server { max_staleness: 0 })]
    {
        for replicas in [2, 3] {
            let folder = tempfile::tempdir().expect("a folder");
            let recipe = Recipe { replicas, sharded, sync, threads_per_rank: 2, ..recipe(2, true, 6) };
            both_ways_are_equal(&mut recipe.pipeline(2, "1f1b"), folder.path(), 2);
        }
    }
}

#[test]
fn several_processes_write_the_same_bytes_beside_steps() {
    let server = |max_staleness| SyncMode::Server { max_staleness };
    for (replicas, sharded, sync) in [
        (1, false, SyncMode::Reduce),
        (2, true, SyncMode::Reduce),
        (2, false, server(0)),
        (2, false, server(2)),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        in_processes(2, |world| {
            // Tied parameters cannot be stale.
            let tied = sync != server(2);
            let recipe = Recipe { replicas, sharded, sync, ..recipe(2, tied, 4) };
            let builder = recipe.builder(named("1f1b", 2, 4));
            let mut pipeline = builder.world(world).launch().expect("it starts");
            let place = |name: &str| folder.path().join(name);
            for _ in 0..2 {
                train(&mut pipeline, 2);
                pipeline.save(place("whole")).expect("it is saved");
                pipeline.save_beside(place("beside")).expect("it is copied");
                let mut told = 0;
                for _ in 0..3 {
                    pipeline.step().expect("a step");
                    told += u32::from(pipeline.saved().expect("it is written").is_some());
                }
                told += u32::from(pipeline.wait_until_saved().expect("it is written").is_some());
                assert_eq!(told, 1);
                assert!(files(&place("whole")) == files(&place("beside")));
                // Nobody saves anew while another still compares.
                pipeline.any(false).expect("all are here");
            }
        });
    }
}

#[test]
fn training_goes_on_bit_for_bit_from_what_was_written_beside_steps() {
    let recipe = recipe(3, true, 3);
    let folder = tempfile::tempdir().expect("a folder");
    let mut pipeline = recipe.pipeline(2, "1f1b");
    train(&mut pipeline, 2);
    pipeline.save_beside(folder.path().join("two")).expect("it is copied");
    train(&mut pipeline, 3);
    let expected = recipe.plain_hash(5);
    assert_eq!(pipeline.weights_hash().expect("it runs"), expected);
    pipeline.wait_until_saved().expect("it is written");
    let mut again = recipe.pipeline(3, "gpipe");
    again.load(folder.path().join("two")).expect("it is loaded");
    assert_eq!(trained(&mut again, 3), expected);
}

/// Data whose fingerprint, which completes a checkpoint, waits until the test lets it.
struct Held {
    source: Arc<dyn DataSource>,
    held: Mutex<Option<Receiver<bool>>>,
}

impl Held {
    /// A pipeline whose first checkpoint is not completed before `true` is sent. After `false`, the thread
    /// that writes panics.
    fn pipeline() -> (Pipeline<Sequential>, Sender<bool>) {
        let (let_go, held) = channel();
        let recipe = recipe(1, false, 2);
        let source = Arc::clone(&recipe.data);
        let held = Mutex::new(Some(held));
        let recipe = Recipe { data: Arc::new(Self { source, held }), ..recipe };
        (recipe.pipeline(2, "1f1b"), let_go)
    }
}

impl DataSource for Held {
    fn micro_batch(&self, step: u64, at: MicroBatch) -> pipewright::Result<(Tensor, Tensor)> {
        self.source.micro_batch(step, at)
    }

    fn shapes(&self) -> (Shape, Shape) {
        self.source.shapes()
    }

    fn fingerprint(&self) -> pipewright::Result<Fingerprint> {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(held) = held {
            assert!(held.recv().expect("the test says so"), "the disk is on fire");
        }
        self.source.fingerprint()
    }
}

#[test]
fn steps_and_other_calls_do_not_wait_for_what_is_on_its_way_and_the_next_checkpoint_does() {
    let folder = tempfile::tempdir().expect("a folder");
    let [one, two, three] = ["one", "two", "three"].map(|name| folder.path().join(name));
    let (mut pipeline, let_go) = Held::pipeline();
    pipeline.save_beside(&one).expect("it is copied");
    trained(&mut pipeline, 3);
    assert_eq!(pipeline.saved().expect("nothing has failed"), None);
    assert!(pipeline.is_saving());
    assert_eq!(names(folder.path()), [".one.partial"], "nothing is there yet");
    let_go.send(true).expect("it waits");
    pipeline.save_beside(&two).expect("it is copied");
    assert!(names(folder.path()).contains(&"one".to_owned()), "the first is whole");
    pipeline.save(&three).expect("it is saved");
    assert_eq!(names(folder.path()), ["one", "three", "two"]);
    assert!(!pipeline.is_saving());
    for (place, step) in [(one, 0), (two, 3), (three, 3)] {
        let checkpoint = Checkpoint::open(&place).expect("whole");
        assert_eq!(checkpoint.verify().expect("whole").step, step);
    }
}

#[test]
fn a_failure_while_it_is_written_is_told_by_name_and_leaves_the_last_good_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path().join("one");
    let (mut pipeline, let_go) = Held::pipeline();
    pipeline.save_beside(&place).expect("it is copied");
    fs::create_dir(&place).expect("made");
    fs::write(place.join("notes.txt"), "years of work").expect("written");
    let_go.send(true).expect("it waits");
    let error = pipeline.wait_until_saved().expect_err("the place is taken");
    assert!(
        error.to_string().ends_with(
            "is not a checkpoint: it holds `notes.txt`; it is left as it is: name another folder for the \
                 checkpoint, or move this one away"
        ),
        "{error}"
    );
    assert_eq!(names(folder.path()), ["one"], "no half of one either");
    assert!(!pipeline.is_saving());
    pipeline.step().expect("the pipeline goes on");
    fs::remove_dir_all(&place).expect("removed");
    pipeline.save_beside(&place).expect("it is copied");
    assert_eq!(pipeline.wait_until_saved().expect("it is written"), Some(place.clone()));
}

#[test]
fn a_folder_that_is_removed_while_it_is_written_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut pipeline, let_go) = Held::pipeline();
    pipeline.save_beside(folder.path().join("one")).expect("it is copied");
    fs::remove_dir_all(folder.path().join(".one.partial")).expect("removed");
    let_go.send(true).expect("it waits");
    has(&pipeline.wait_until_saved().expect_err("its folder is gone"), &["/.one.partial"]);
    pipeline.step().expect("the pipeline goes on");
    pipeline.save(folder.path().join("one")).expect("it is saved");
}

#[test]
fn a_panic_of_the_thread_that_writes_is_an_error_and_the_pipeline_goes_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut pipeline, let_go) = Held::pipeline();
    pipeline.save_beside(folder.path().join("one")).expect("it is copied");
    let_go.send(false).expect("it waits");
    has(&pipeline.wait_until_saved().expect_err("it has panicked"), &["the disk is on fire"]);
    assert_eq!(names(folder.path()), [""; 0]);
    pipeline.step().expect("a step");
    pipeline.save_beside(folder.path().join("one")).expect("it is copied");
    assert!(pipeline.wait_until_saved().expect("it is written").is_some());
}

#[test]
fn a_dropped_pipeline_completes_what_is_on_its_way() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path().join("one");
    let (mut pipeline, let_go) = Held::pipeline();
    train(&mut pipeline, 2);
    pipeline.save_beside(&place).expect("it is copied");
    train(&mut pipeline, 1);
    let_go.send(true).expect("it waits");
    drop(pipeline);
    assert_eq!(Checkpoint::open(&place).expect("whole").verify().expect("whole").step, 2);
    assert_eq!(names(folder.path()), ["one"]);
}

/// A pipeline in each of two processes that share a folder.
fn in_two<T: Send>(call: impl Fn(Pipeline<Sequential>, u32) -> T + Sync) -> Vec<T> {
    in_processes(2, |world| {
        let process = world.process();
        let builder = recipe(2, true, 4).builder(named("1f1b", 2, 4));
        call(builder.world(world).launch().expect("it starts"), process)
    })
}

#[test]
fn processes_that_drop_their_pipelines_complete_what_is_on_its_way() {
    let folder = tempfile::tempdir().expect("a folder");
    in_two(|mut pipeline, _| {
        train(&mut pipeline, 2);
        pipeline.save_beside(folder.path().join("two")).expect("it is copied");
    });
    let checkpoint = Checkpoint::open(&folder.path().join("two")).expect("whole");
    assert_eq!(checkpoint.verify().expect("whole").step, 2);
    assert_eq!(names(folder.path()), ["two"]);
}

#[test]
fn a_failure_of_the_end_is_told_in_all_processes_and_all_go_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path().join("two");
    let told = in_two(|mut pipeline, process| {
        pipeline.save_beside(&place).expect("it is copied");
        if process == 0 {
            // Nothing is completed before all processes have asked.
            fs::create_dir(&place).expect("made");
            fs::write(place.join("notes.txt"), "years of work").expect("written");
        }
        let error = pipeline.wait_until_saved().expect_err("the place is taken");
        assert!(!pipeline.is_saving());
        pipeline.step().expect("it goes on");
        pipeline.save_beside(folder.path().join("three")).expect("it is copied");
        pipeline.wait_until_saved().expect("it is written");
        error
    });
    assert!(matches!(&told[0], Error::Checkpoint(_)));
    for error in told {
        assert!(
            error.to_string().ends_with(
                "is not a checkpoint: it holds `notes.txt`; it is left as it is: name another folder for the \
                 checkpoint, or move this one away"
            ),
            "{error}"
        );
    }
    assert_eq!(names(folder.path()), ["three", "two"]);
}

#[test]
fn a_process_that_fails_leaves_no_half_of_what_is_on_its_way() {
    let folder = tempfile::tempdir().expect("a folder");
    in_two(|mut pipeline, process| {
        pipeline.save(folder.path().join("zero")).expect("it is saved");
        pipeline.step().expect("a step");
        pipeline.save_beside(folder.path().join("one")).expect("it is copied");
        if process == 1 {
            pipeline.fail(&Error::Panicked("a test".to_owned()));
        } else {
            while pipeline.step().is_ok() {}
        }
    });
    assert_eq!(names(folder.path()), ["zero"]);
}
