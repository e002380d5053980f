//! What becomes of a run whose lock or whose directory somebody takes away.

use std::fs::{File, TryLockError};

use super::*;

/// Does something in the run directory after step 1 of a run of six.
fn train(place: &Place, mut meddle: impl FnMut(&Path) + 'static) -> (Result<Vec<Task>>, bool) {
    let (path, held) = (place.path(), Rc::new(RefCell::new(false)));
    let seen = Rc::clone(&held);
    let listen = move |event: &Event<'_>| match event {
        Event::Step(report) if report.step == 1 || report.step == 3 => meddle(&path),
        Event::Step(report) if report.step == 4 => {
            let lock = File::open(path.join("lock")).expect("it is there");
            *seen.borrow_mut() = matches!(lock.try_lock(), Err(TryLockError::WouldBlock));
        }
        _ => {}
    };
    let outcome = place.run().steps(6).on(listen).train(&mut pipeline());
    let tasks = outcome.map(|outcome| outcome.warnings.iter().map(|warning| warning.task).collect());
    let held = *held.borrow();
    (tasks, held)
}

#[test]
fn a_lock_that_is_removed_is_made_anew_and_the_run_goes_on_with_one_warning() {
    let place = Place::new();
    let (tasks, held) = train(&place, |path| fs::remove_file(path.join("lock")).expect("removed"));
    assert_eq!(tasks.expect("the run goes on"), [Task::Lock]);
    assert!(held, "nobody else may train there");
    assert_eq!(place.checkpoints(), [6]);
}

#[test]
fn a_run_whose_lock_another_has_taken_ends_and_says_who_has_it() {
    let place = Place::new();
    let mut others = Vec::new();
    let take = move |path: &Path| {
        fs::remove_file(path.join("lock")).expect("removed");
        let lock = File::create_new(path.join("lock")).expect("made");
        lock.lock().expect("nobody has it");
        others.push(lock);
        fs::write(path.join("lock"), r#"{"pid": 7, "host": "there", "since": "2026-01-31T12:00:00Z"}"#)
            .expect("signed");
    };
    let (tasks, _) = train(&place, take);
    let error = tasks.expect_err("it ends");
    assert!(matches!(&error, Error::Run(error) if matches!(**error, RunError::Taken { .. })), "{error:?}");
    has(&error, &["another run has begun there, of process 7 on host there"]);
}

#[test]
fn a_directory_that_is_replaced_ends_the_run_also_when_there_is_a_lock_in_it() {
    let place = Place::new();
    let replace = |path: &Path| {
        fs::rename(path, path.with_file_name("elsewhere")).expect("moved");
        fs::create_dir(path).expect("made");
        fs::write(path.join("lock"), "").expect("made");
    };
    let (tasks, _) = train(&place, replace);
    assert!(matches!(&tasks, Err(Error::Run(error)) if matches!(**error, RunError::Gone(_))), "{tasks:?}");
    assert_eq!(contents(&place.path()).len(), 1, "nothing is written there");
}

#[test]
fn files_that_are_removed_are_written_again_and_the_run_goes_on_with_one_warning() {
    let place = Place::new();
    let removed = ["metrics.jsonl", "history.jsonl", "about.json", "run.json", "config.toml"];
    let path = place.path();
    let listen = move |event: &Event<'_>| {
        if matches!(event, Event::Step(report) if report.step == 3) {
            for name in removed {
                fs::remove_file(path.join(name)).expect("removed");
            }
        }
    };
    let run = place.run().steps(6).config("# mine\n".to_owned()).on(listen);
    let outcome = run.train(&mut pipeline()).expect("the run goes on");
    let told: Vec<String> = outcome.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("run.json was removed or replaced: it was written again"), "{told:?}");
    assert_eq!(place.read("metrics.jsonl").lines().count(), 6);
    assert_eq!(place.read("history.jsonl").lines().count(), 2);
    assert_eq!(place.read("config.toml"), "# mine\n");
    assert!(!place.read("about.json").is_empty());
    assert_eq!(place.dir().last().expect("listed"), Some(place.dir().checkpoint(6)));
}
