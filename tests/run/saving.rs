//! Checkpoints that are written while the next steps run: what is told, what is kept, what a failure leaves.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};

use pipewright::checkpoint::Checkpoint;
use pipewright::data::Fingerprint;

use super::*;

#[test]
fn every_checkpoint_is_told_once_when_it_is_whole_and_run_json_names_it() {
    let place = Place::new();
    let told = Rc::new(RefCell::new(Vec::new()));
    let (note, dir) = (Rc::clone(&told), place.dir());
    let run = place.run().steps(7).save_every(2).on(move |event| {
        if let Event::Checkpoint { step, path, .. } = event {
            assert_eq!(*path, dir.checkpoint(*step));
            assert_eq!(Checkpoint::open(path).expect("whole").verify().expect("whole").step, *step);
            let mark = fs::read_to_string(dir.path().join("run.json")).expect("it is there");
            has(&mark, &[&format!("checkpoints/step-{step:08}")]);
            note.borrow_mut().push(*step);
        }
    });
    let outcome = run.train(&mut pipeline()).expect("it trains");
    assert_eq!(*told.borrow(), [2, 4, 6, 7]);
    assert!(outcome.stalled > 0.0);
    assert!(outcome.warnings.is_empty(), "{:?}", outcome.warnings);
}

#[test]
fn checkpoints_beside_steps_and_whole_ones_are_the_same_files() {
    let [beside, whole] = [true, false].map(|beside| {
        let place = Place::new();
        let run = place.run().steps(6).save_every(2).save_beside(beside).keep(9);
        run.train(&mut pipeline()).expect("it trains");
        let checkpoints = contents(&place.path().join("checkpoints")).into_iter();
        let name = |path: PathBuf| path.strip_prefix(place.path()).expect("inside").to_owned();
        checkpoints.map(|(path, bytes)| (name(path), bytes)).collect::<Vec<_>>()
    });
    assert_eq!(beside.len(), 9);
    assert!(beside == whole);
}

#[test]
fn a_checkpoint_every_so_many_steps_is_kept_for_ever() {
    let place = Place::new();
    let run = place.run().steps(13).save_every(2).keep(1).keep_every(5);
    run.train(&mut pipeline()).expect("it trains");
    let kept: BTreeSet<u64> = place.checkpoints().into_iter().collect();
    assert_eq!(kept, BTreeSet::from([5, 10, 12, 13]));
}

#[test]
fn without_checkpoints_by_number_the_best_and_the_last_are_saved() {
    let place = Place::new();
    let run = place.run().steps(7).save_every(0).keep(9).validate(validation(2.0).every(3));
    run.train(&mut pipeline()).expect("it trains");
    // The loss falls from step to step: 3 and 6 are the lowest so far, and 7 is the last.
    assert_eq!(place.checkpoints(), [3, 6, 7]);
}

/// Data whose fingerprint waits until the test lets it. So the first checkpoint waits too.
struct Held(Mutex<Option<Receiver<()>>>);

impl Held {
    fn pipeline() -> (Pipeline<Sequential>, Sender<()>) {
        let (let_go, held) = channel();
        (pipeline_on(Self(Mutex::new(Some(held)))), let_go)
    }
}

impl DataSource for Held {
    fn micro_batch(&self, step: u64, micro_batch: MicroBatch) -> Result<(Tensor, Tensor)> {
        Times(2.0).micro_batch(step, micro_batch)
    }

    fn shapes(&self) -> (Shape, Shape) {
        Times(2.0).shapes()
    }

    fn fingerprint(&self) -> Result<Fingerprint> {
        if let Some(held) = self.0.lock().expect("no panic").take() {
            // After a failure the test may be gone.
            let _ = held.recv();
        }
        Times(2.0).fingerprint()
    }
}

/// What a run tells of its steps and checkpoints.
fn log(note: &Rc<RefCell<Vec<String>>>) -> impl Fn(&Event<'_>) + use<> {
    let note = Rc::clone(note);
    move |event| {
        note.borrow_mut().push(match event {
            Event::Step(report) => format!("step {}", report.step),
            Event::Checkpoint { step, .. } => format!("checkpoint {step}"),
            Event::Waits { step, earlier } => format!("{step} waits for {earlier}"),
            Event::End(_) => "end".to_owned(),
            other => format!("{other:?}"),
        });
    }
}

#[test]
fn a_checkpoint_that_is_due_too_early_waits_and_says_so() {
    let place = Place::new();
    let told = Rc::new(RefCell::new(Vec::new()));
    let (mut pipeline, let_go) = Held::pipeline();
    let dir = place.dir();
    let release = move |event: &Event<'_>| {
        if let Event::Waits { .. } = event {
            assert!(dir.checkpoints().expect("a list").is_empty(), "the first one is not there");
            let_go.send(()).expect("it waits");
        }
    };
    let run = place.run().steps(5).save_every(2).on(log(&told)).on(release);
    let outcome = run.train(&mut pipeline).expect("it trains");
    let told = told.borrow();
    let steps = ["step 0", "step 1", "step 2", "step 3", "4 waits for 2"];
    assert_eq!(told[..5], steps, "the steps did not wait");
    let rest: Vec<_> = told[5..].iter().filter(|told| !told.starts_with("step")).collect();
    assert_eq!(rest, ["checkpoint 2", "checkpoint 4", "checkpoint 5", "end"]);
    assert!(outcome.stalled > 0.0);
}

#[test]
fn a_run_that_is_stopped_waits_for_what_is_on_its_way() {
    let place = Place::new();
    let told = Rc::new(RefCell::new(Vec::new()));
    let (mut pipeline, let_go) = Held::pipeline();
    let stop = move |event: &Event<'_>| match event {
        Event::Step(report) if report.step == 2 => {
            let_go.send(()).expect("it waits");
            Next::Stop
        }
        _ => Next::Continue,
    };
    let run = place.run().steps(9).save_every(2).on(log(&told)).on(stop);
    run.train(&mut pipeline).expect("it trains");
    assert_eq!(place.checkpoints(), [2, 3]);
    let told = told.borrow();
    assert_eq!(told[3..], ["checkpoint 2", "checkpoint 3", "end"], "{told:?}");
}

#[test]
fn run_json_names_a_best_checkpoint_only_when_it_is_on_the_disk() {
    let place = Place::new();
    let (mut pipeline, let_go) = Held::pipeline();
    let dir = place.dir();
    let look = move |event: &Event<'_>| match event {
        Event::Step(report) if report.step == 3 => {
            // The best one, after 2 steps, is on its way.
            assert_eq!(dir.best().expect("it is read"), None);
            let_go.send(()).expect("it waits");
        }
        Event::Checkpoint { step: 2, .. } => {
            assert_eq!(dir.best().expect("it is read").map(|best| best.step), Some(2));
        }
        _ => {}
    };
    let run = place.run().steps(7).validate(validation(2.0).every(2)).on(look);
    let outcome = run.train(&mut pipeline).expect("it trains");
    assert_eq!(outcome.best.map(|best| best.step), Some(7));
    assert_eq!(place.dir().best().expect("it is read"), outcome.best);
}

#[test]
fn a_checkpoint_that_cannot_be_written_ends_the_run() {
    let place = Place::new();
    let (mut pipeline, let_go) = Held::pipeline();
    let failed = Rc::new(RefCell::new(false));
    let (note, dir) = (Rc::clone(&failed), place.dir());
    let spoil = move |event: &Event<'_>| match event {
        Event::Step(report) if report.step == 2 => {
            fs::remove_dir_all(dir.path().join("checkpoints/.step-00000002.partial")).expect("removed");
            let_go.send(()).expect("it waits");
        }
        Event::Checkpoint { step, .. } => panic!("{step} is not saved"),
        Event::Failed(failed) => {
            assert_eq!(failed.last, None);
            *note.borrow_mut() = true;
        }
        _ => {}
    };
    let run = place.run().steps(2000).save_every(2).on(spoil);
    has(&run.train(&mut pipeline).expect_err("it cannot be written"), &[".step-00000002.partial"]);
    assert!(*failed.borrow());
    assert_eq!(place.checkpoints_and_others(), [""; 0]);
    assert!(place.read("history.jsonl").contains("failed: "));
}

/// Inputs that are not finite from this step on.
struct Spoilt(u64);

impl DataSource for Spoilt {
    fn micro_batch(&self, step: u64, micro_batch: MicroBatch) -> Result<(Tensor, Tensor)> {
        let factor = if step >= self.0 { f32::NAN } else { 2.0 };
        Times(factor).micro_batch(step, micro_batch)
    }

    fn shapes(&self) -> (Shape, Shape) {
        Times(2.0).shapes()
    }
}

#[test]
fn a_step_that_is_not_finite_sets_aside_what_is_still_on_its_way() {
    let place = Place::new();
    let run = place.run().steps(9).save_every(2);
    let error = run.train(&mut pipeline_on(Spoilt(4))).expect_err("it is not finite");
    assert!(matches!(error, Error::NotFinite { step: 4, .. }), "{error:?}");
    assert_eq!(place.checkpoints_and_others(), ["step-00000002", "step-00000004.not-finite"]);
    let mark: serde_json::Value = serde_json::from_str(&place.read("run.json")).expect("JSON");
    assert_eq!(mark["last"], "checkpoints/step-00000002");
}
