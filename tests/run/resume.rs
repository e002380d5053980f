//! Resuming a run.

use super::*;

use std::io::Write;

use pipewright::run::Interrupt;

#[test]
fn a_run_in_two_parts_ends_with_the_weights_of_one_in_one_part() {
    let (whole, parts) = (Place::new(), Place::new());
    let hash = |place: &Place, steps| {
        let mut pipeline = pipeline();
        let run = place.run().steps(steps).resume(Resume::IfThere);
        let outcome = run.train(&mut pipeline).expect("it trains");
        (outcome.trained, pipeline.weights_hash().expect("it runs"))
    };
    let (_, expected) = hash(&whole, 7);
    assert_eq!(hash(&parts, 3).0, 3);
    assert_eq!(hash(&parts, 7), (4, expected.clone()));
    assert_eq!(hash(&parts, 7), (0, expected), "all steps are done");
}

#[test]
fn an_interrupted_run_is_saved_and_goes_on() {
    let place = Place::new();
    let interrupt = Interrupt::new();
    let asked = interrupt.clone();
    let ask = move |event: &Event<'_>| {
        if matches!(event, Event::Step(report) if report.step == 1) {
            asked.request();
        }
    };
    let run = place.run().steps(5).interrupt(interrupt).on(ask);
    let outcome = run.train(&mut pipeline()).expect("it trains");
    assert_eq!((outcome.ended, outcome.steps), (Ended::Interrupted, 2));
    place.train(5);
    assert_eq!(place.dir().last().expect("listed"), Some(place.dir().checkpoint(5)));
}

#[test]
fn lines_that_stay_keep_every_byte_and_later_ones_and_half_lines_are_cut_off() {
    let place = Place::new();
    place.train(2);
    // A number with more digits than needed, a line that is not JSON, a line after the checkpoint, and half a
    // line.
    let odd =
        "{\"step\":0,\"loss\":0.30000000000000004440892098500626}\nno JSON\n{\"step\":1,\"loss\":2.50}\n";
    let past = "{\"step\":2,\"loss\":9.0}\n{\"step\":3,\"lo";
    let mut file = fs::File::create(place.path().join("metrics.jsonl")).expect("the file opens");
    file.write_all(format!("{odd}{past}").as_bytes()).expect("it is written");
    place.train(3);
    let text = place.read("metrics.jsonl");
    let rest = text.strip_prefix(odd).unwrap_or_else(|| panic!("{text}"));
    assert!(rest.starts_with("{\"step\":2,") && rest.lines().count() == 1, "{rest}");
}

#[test]
fn the_best_checkpoint_of_earlier_steps_is_remembered() {
    let place = Place::new();
    let train = |steps| {
        let run = place.run().steps(steps).save_every(5).keep(1).resume(Resume::IfThere);
        let run = run.validate(validation(-1.0).every(5));
        run.train(&mut pipeline()).expect("it trains").best.expect("there were validations")
    };
    let first = train(10);
    assert_eq!((first.step, train(30)), (5, first));
    assert!(place.checkpoints().contains(&5));
}

#[test]
fn the_best_checkpoint_of_another_validation_counts_no_more_and_the_history_says_so() {
    let place = Place::new();
    let train = |steps, factor| {
        let run = place.run().steps(steps).save_every(5).keep(1).resume(Resume::IfThere);
        let run = run.validate(validation(factor).every(5));
        let best = run.train(&mut pipeline()).expect("it trains").best;
        best.expect("there were validations")
    };
    let easy = train(10, 2.0);
    let hard = train(20, -9.0);
    assert!(hard.step > 10 && hard.validation_loss > easy.validation_loss, "{easy:?}, {hard:?}");
    assert_eq!(place.dir().best().expect("it is read"), Some(hard));
    let history = place.read("history.jsonl");
    let said = format!(
        "validates on other data than before: the checkpoint after {} steps is no longer the best",
        easy.step
    );
    has(&history, &[&said]);
    assert_eq!(train(30, -9.0), hard, "the same validation again");
}

#[test]
fn what_a_killed_write_left_keeps_no_run_from_beginning_and_is_taken_up() {
    let place = Place::new();
    fs::create_dir(place.path()).expect("made");
    fs::write(place.path().join(".run.json.partial"), "ha").expect("written");
    place.train(2);
    fs::write(place.path().join(".loss.svg.partial"), "ha").expect("written");
    place.train(4);
    let left = fs::read_dir(place.path()).expect("a folder");
    let names = left.map(|entry| entry.expect("an entry").file_name());
    let hidden: Vec<_> = names.filter(|name| name.to_string_lossy().starts_with('.')).collect();
    assert!(hidden.is_empty(), "{hidden:?}");
}

#[test]
fn a_run_of_an_earlier_version_goes_on_and_is_marked() {
    let place = Place::new();
    place.train(2);
    fs::remove_file(place.path().join("run.json")).expect("removed");
    let state = place.dir().checkpoint(2).join("state.json");
    fs::write(state, r#"{"format": 1, "step": 2, "config": ""}"#).expect("written");
    let error = place.run().train(&mut pipeline()).expect_err("there is a run");
    assert!(matches!(&error, Error::Run(error) if matches!(**error, RunError::Exists(_))), "{error:?}");
    let run = place.run().steps(4).resume(Resume::Always);
    let outcome = run.train(&mut pipeline()).expect("it goes on");
    assert_eq!(outcome.trained, 2);
    assert!(place.dir().is_run());
    has(&place.read("history.jsonl"), &["there was no run.json"]);
}

#[test]
fn a_damaged_mark_is_refused_with_the_way_on() {
    let place = Place::new();
    place.train(2);
    let mark = place.path().join("run.json");
    fs::write(&mark, "{\"format\"").expect("written");
    let again = || place.run().steps(4).resume(Resume::Always).train(&mut pipeline());
    let said = again().expect_err("it is damaged").to_string();
    let way =
        format!("move the file away, and --resume goes on from {}", place.dir().checkpoint(2).display());
    has(&said, &["run.json is not the mark of a run", &way]);
    fs::rename(&mark, place.0.path().join("away")).expect("moved");
    assert_eq!(again().expect("it goes on").trained, 2);
}

#[test]
fn half_of_a_removed_or_saved_checkpoint_is_swept_up_and_the_only_copy_of_one_is_not() {
    let place = Place::new();
    place.train(2);
    let checkpoints = place.path().join("checkpoints");
    let left = |name: &str| checkpoints.join(name);
    for name in
        [".step-00000001.partial", ".step-00000004.partial", ".step-00000002.old", ".step-00000009.old"]
    {
        fs::create_dir(left(name)).expect("made");
        fs::write(left(name).join("model.safetensors"), "half").expect("written");
    }
    place.train(3);
    assert!(!left(".step-00000001.partial").exists() && !left(".step-00000004.partial").exists());
    assert!(!left(".step-00000002.old").exists(), "step 2 is there");
    assert!(left(".step-00000009.old").exists(), "step 9 is not");
}

#[test]
fn other_data_is_refused_until_it_is_allowed_and_then_the_history_names_both() {
    let place = Place::new();
    place.train(2);
    // The lock file changes, because it says when the lock was last taken.
    let files = || {
        let mut all = contents(&place.path());
        all.retain(|(path, _)| !path.ends_with("lock"));
        all
    };
    let before = files();
    let again = || place.run().steps(3).resume(Resume::Always);
    let mut other = pipeline_on(Times(3.0));
    let error = again().train(&mut other).expect_err("other data");
    let Error::Checkpoint(refusal) = &error else {
        panic!("{error:?}");
    };
    let CheckpointError::OtherData { folder, saved, given } = refusal.as_ref() else {
        panic!("{error:?}");
    };
    assert_eq!(*folder, place.dir().checkpoint(2));
    assert_ne!(saved.contents, given.contents);
    let message = error.to_string();
    for part in [&saved.to_string(), &given.to_string(), "--allow-other-data"] {
        has(&message, &[part]);
    }
    assert_eq!(files(), before, "a refusal changes nothing");
    let mut other = pipeline_on(Times(3.0));
    again().allow_other_data(true).train(&mut other).expect("it trains");
    let line = format!("continues with other data: {given}; it was {saved}");
    has(&place.read("history.jsonl"), &[&line]);
    let mut other = pipeline_on(Times(3.0));
    again().steps(4).train(&mut other).expect("the newest checkpoint knows this data");
    let error = again().steps(5).train(&mut pipeline()).expect_err("the first data is now the other");
    assert!(
        matches!(&error, Error::Checkpoint(refusal)
            if matches!(**refusal, CheckpointError::OtherData { .. })),
        "{error:?}"
    );
}
