//! Who owns a run directory, and which directories are refused and left unchanged.

use super::*;

fn refused(run: Run) -> RunError {
    match run.begin(&mut pipeline()).map(drop) {
        Err(Error::Run(error)) => *error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn one_process_trains_in_a_directory_and_the_refusal_says_which() {
    let place = Place::new();
    place.train(2);
    let mut first = pipeline();
    let run = place.run().steps(3).resume(Resume::Always);
    let session = run.begin(&mut first).expect("nobody trains there");
    let before = contents(&place.path());
    let error = refused(place.run().steps(9).resume(Resume::Always));
    assert!(matches!(&error, RunError::InUse { holder: Some(_), .. }), "{error:?}");
    let said = error.to_string();
    let holder = format!("is in use by process {} on host ", std::process::id());
    has(&said, &[&holder, ", since 20"]);
    assert_eq!(contents(&place.path()), before);
    session.train().expect("it trains");
    place.train(4);
}

#[test]
fn a_new_run_holds_the_lock_too() {
    let place = Place::new();
    let mut first = pipeline();
    let session = place.run().begin(&mut first).expect("nobody trains there");
    let error = refused(place.run().resume(Resume::IfThere));
    assert!(matches!(error, RunError::InUse { .. }), "{error:?}");
    drop(session);
    // It ended before its first checkpoint, so it begins again.
    for resume in [Resume::Never, Resume::IfThere, Resume::Always] {
        let mut pipeline = pipeline();
        let session = place.run().resume(resume).begin(&mut pipeline).expect("nobody trains there");
        let note = "a run was lost here before its first checkpoint: it begins again";
        assert_eq!(session.notes(), [note], "{resume:?}");
    }
}

#[test]
fn of_several_new_runs_that_find_a_directory_free_at_the_same_moment_one_trains() {
    let place = Place::new();
    let claim = || place.run().steps(1).claim(None).expect("it is free");
    let [first, second, third] = [claim(), claim(), claim()];
    let mut own = pipeline();
    let session = first.begin(&mut own).expect("nobody trains there");
    let before = contents(&place.path());
    let error = refused(second);
    assert!(matches!(error, RunError::InUse { .. }), "{error:?}");
    assert_eq!(contents(&place.path()), before);
    session.train().expect("it trains");
    let before = contents(&place.path());
    let error = refused(third);
    assert!(matches!(error, RunError::Exists(_)), "{error:?}");
    let unlocked = |(path, _): &(PathBuf, Vec<u8>)| !path.ends_with("lock");
    let without_lock = |all: Vec<_>| all.into_iter().filter(unlocked).collect::<Vec<_>>();
    assert_eq!(without_lock(contents(&place.path())), without_lock(before));
}

#[test]
fn a_folder_that_holds_no_run_is_left_as_it_is() {
    let place = Place::new();
    fs::create_dir(place.path()).expect("made");
    fs::write(place.path().join("config.toml"), "# mine\n").expect("written");
    fs::write(place.path().join("metrics.jsonl"), "my numbers\n").expect("written");
    let before = contents(&place.path());
    for resume in [Resume::Never, Resume::IfThere, Resume::Always] {
        let error = refused(place.run().resume(resume));
        has(&error, &["nothing was changed"]);
        assert!(!error.to_string().contains("--resume or"), "{error}");
        assert_eq!(contents(&place.path()), before, "{resume:?}");
    }
}

#[test]
fn a_run_whose_checkpoints_are_gone_is_neither_resumed_nor_begun_again() {
    let place = Place::new();
    place.train(2);
    fs::remove_dir_all(place.dir().checkpoint(2)).expect("removed");
    let metrics = place.read("metrics.jsonl");
    for resume in [Resume::Never, Resume::IfThere, Resume::Always] {
        let error = refused(place.run().resume(resume));
        assert!(matches!(error, RunError::NoCheckpoint(_)), "{error:?}");
        assert_eq!(place.read("metrics.jsonl"), metrics);
    }
}

#[test]
fn a_new_run_is_refused_where_a_run_is_and_a_resumed_one_where_none_is() {
    let place = Place::new();
    assert!(matches!(refused(place.run().resume(Resume::Always)), RunError::Nothing(_)));
    assert!(!place.path().exists());
    place.train(2);
    assert!(matches!(refused(place.run()), RunError::Exists(_)));
}

#[test]
fn a_refused_run_leaves_the_pipeline_to_train_elsewhere() {
    let (place, other) = (Place::new(), Place::new());
    place.train(2);
    let mut pipeline = pipeline();
    assert!(place.run().begin(&mut pipeline).is_err());
    let outcome = other.run().steps(1).train(&mut pipeline).expect("it trains");
    assert_eq!(outcome.steps, 1);
}

#[test]
fn a_mark_of_another_format_is_refused() {
    let place = Place::new();
    place.train(2);
    let mark = place.read("run.json").replace("\"format\": 1", "\"format\": 7");
    fs::write(place.path().join("run.json"), mark).expect("written");
    has(
        &refused(place.run().resume(Resume::Always)),
        &["run.json has format 7, this program reads format 1"],
    );
}

#[test]
fn a_directory_that_is_removed_or_moved_ends_the_run_with_words() {
    for moved in [false, true] {
        let place = Place::new();
        let (path, elsewhere) = (place.path(), place.0.path().join("elsewhere"));
        let take = move |event: &Event<'_>| {
            if matches!(event, Event::Step(report) if report.step == 1) {
                match moved {
                    true => fs::rename(&path, &elsewhere).expect("moved"),
                    false => fs::remove_dir_all(&path).expect("removed"),
                }
            }
        };
        let result = place.run().steps(9).on(take).train(&mut pipeline());
        let Err(Error::Run(error)) = result else {
            panic!("{result:?}");
        };
        assert!(matches!(*error, RunError::Gone(_)), "{error:?}");
        assert!(!place.path().exists(), "nothing is made anew");
    }
}
