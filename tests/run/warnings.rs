//! Failures outside the training itself are reported once, and end no run.

use super::*;

#[test]
fn a_picture_that_cannot_be_drawn_and_a_checkpoint_that_cannot_be_removed_are_told_once() {
    let place = Place::new();
    place.train(2);
    let path = place.path();
    // Folders are in the way of a picture, and of a checkpoint that is being removed.
    fs::remove_file(path.join("loss.svg")).expect("removed");
    fs::create_dir_all(path.join("loss.svg/mine")).expect("made");
    let told = Rc::new(RefCell::new(Vec::new()));
    let note = Rc::clone(&told);
    let listen = move |event: &Event<'_>| match event {
        Event::Step(report) if report.step == 2 => {
            fs::create_dir_all(path.join("checkpoints/.step-00000002.partial/mine")).expect("made");
        }
        Event::Warning(warning) => note.borrow_mut().push((warning.task, warning.to_string())),
        _ => {}
    };
    let run = place.run().steps(8).save_every(1).save_beside(false).keep(1).resume(Resume::Always).on(listen);
    let outcome = run.train(&mut pipeline()).expect("the run goes on");
    assert_eq!(outcome.steps, 8);
    let tasks: Vec<Task> = told.borrow().iter().map(|(task, _)| *task).collect();
    assert_eq!(tasks, [Task::Picture, Task::Prune]);
    assert_eq!(outcome.warnings.len(), 2);
    let (_, said) = &told.borrow()[0];
    assert!(said.starts_with("warning: could not draw the losses: cannot write "), "{said}");
    has(&said, &["loss.svg"]);
}

#[test]
fn numbers_are_only_added_to_and_the_picture_is_drawn_without_reading_them() {
    let place = Place::new();
    let path = place.path();
    let hide = move |event: &Event<'_>| {
        if matches!(event, Event::Step(report) if report.step == 4) {
            fs::rename(path.join("metrics.jsonl"), path.join("elsewhere")).expect("renamed");
        }
    };
    let run = place.run().steps(8).save_every(2).on(hide);
    let outcome = run.train(&mut pipeline()).expect("it trains");
    let told: Vec<Task> = outcome.warnings.iter().map(|warning| warning.task).collect();
    assert_eq!(told, [Task::Files]);
    assert_eq!(place.read("metrics.jsonl").lines().count(), 8, "it is written again, with all lines");
    assert!(place.read("loss.svg").contains("data-name=\"training\""), "the losses are in the picture");
}

#[test]
fn the_picture_of_a_long_run_is_no_larger_than_that_of_a_shorter_one() {
    let place = Place::new();
    place.train(1);
    let size = |lines: u64| {
        let line = |at: u64| format!("{{\"step\":0,\"loss\":{}}}\n", 1.0 + (at % 7) as f64 / 9.0);
        let text: String = (0..lines).map(line).collect();
        fs::write(place.path().join("metrics.jsonl"), text).expect("written");
        let done = place.checkpoints().pop().expect("a checkpoint");
        place.train(done + 1);
        place.read("loss.svg").len()
    };
    let (short, long) = (size(1000), size(100_000));
    assert!(short > 10_000, "a thousand points: {short}");
    assert!(long < 2 * short, "{short} bytes for 1,000 steps, {long} for 100,000");
}

#[test]
fn the_picture_names_the_run_the_unit_and_both_curves() {
    let place = Place::new();
    let run = place.run().steps(6).validate(validation(2.0).every(2)).loss_unit("squares", "number");
    run.train(&mut pipeline()).expect("it trains");
    let svg = place.read("loss.svg");
    for part in ["Loss of run", "loss (squares per number)", "training", "validation"] {
        assert!(svg.contains(part), "{part}");
    }
}

#[test]
fn the_history_tells_when_a_run_began_went_on_and_ended() {
    let place = Place::new();
    place.train(2);
    place.train(3);
    let history = place.read("history.jsonl");
    let events: Vec<serde_json::Value> =
        history.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let told: Vec<(u64, &str)> = events
        .iter()
        .map(|event| (event["step"].as_u64().expect("a number"), event["event"].as_str().expect("a text")))
        .collect();
    assert_eq!((told[0], told[2]), ((0, "began"), (2, "resumed")));
    assert!(told[1].1.starts_with("done: 2 steps in ") && told[3].0 == 3, "{told:?}");
}
