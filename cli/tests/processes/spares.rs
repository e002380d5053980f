//! Spares: they wait beside a run, and take the places of processes that are lost.

use super::Started;
use super::throttled::{MANY, Throttled};
use crate::has;

/// What a spare has printed after it was known.
fn printed_since(spare: Started) -> String {
    let all = spare.end().done().stdout;
    all.split_once('\n').expect("it is known").1.to_owned()
}

#[test]
fn spares_take_the_places_of_lost_processes() {
    let mut run = Throttled::start(3, &["pipeline.stages=3", MANY]);
    let spares = [run.spare(), run.spare(), run.spare()];
    for spare in &spares {
        assert_eq!(spare.await_printed("\n"), format!("a spare of the run at {}\n", run.address));
    }
    for (step, victim) in [(8, 2), (16, 1)] {
        run.await_step(step);
        run.kill(victim);
        run.await_return();
    }
    // The spares are processes 1 and 2 now.
    let (place, args) = (run.place.path("."), run.args.clone());
    let first = run.end_first();
    let mut said = spares.map(printed_since);
    said.sort();
    let takes = |process| format!("takes the place of process {process}\n");
    assert_eq!(said, [takes(1), takes(2), "the run has ended\n".to_owned()]);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let whole = first.0.alone(&[&args[..], &["--run-dir", "whole"]].concat()).done();
    assert_eq!(first.1.done().hash(), whole.hash(), "in {}", place.display());
    assert_eq!(first.0.numbers("runs/small"), first.0.numbers("whole"));
}

#[test]
fn a_spare_that_differs_is_refused_when_it_comes() {
    let run = Throttled::start(2, &[]);
    let spare = run.spare();
    spare.await_printed("\n");
    for (more, expected) in [
        (
            ["--set", "train.snapshot_every=6"],
            "it has `[train] snapshot_every = 6`, process 0 `[train] snapshot_every = 5`",
        ),
        (["--steps", "7"], "it has `[options] --steps 7`, process 0 `[options] --steps no`"),
    ] {
        let ended = run.spare_with(&more).end();
        assert_eq!(ended.stdout, "", "it was never known");
        let differs = "this spare was started with another config";
        assert_eq!(
            ended.failed(2),
            format!("error: {differs}: {expected}; start all with the same config and options\n")
        );
    }
    // The run has not noticed.
    let said = run.ends_as_if_nothing_had_happened();
    assert!(!said.contains("spare"), "{said}");
    assert_eq!(printed_since(spare), "the run has ended\n");
}

#[test]
fn a_spare_that_has_died_is_passed_over() {
    let mut run = Throttled::start(2, &[]);
    let spares = [run.spare(), run.spare()];
    for spare in &spares {
        spare.await_printed("\n");
    }
    let [living, mut dead] = spares;
    dead.child.kill().unwrap();
    dead.child.wait().unwrap();
    run.await_step(8);
    run.kill(1);
    let (_, ended) = run.end_first();
    ended.done();
    assert_eq!(printed_since(living), "takes the place of process 1\n");
}

#[test]
fn a_spare_ends_with_its_run() {
    let run = Throttled::start(2, &[]);
    let spare = run.spare();
    spare.await_printed("\n");
    let (_, ended) = run.end();
    ended.into_iter().for_each(|process| drop(process.done()));
    assert_eq!(printed_since(spare), "the run has ended\n");

    let mut run = Throttled::start(2, &[]);
    let spare = run.spare();
    spare.await_printed("\n");
    run.kill(0);
    has(&spare.end().failed(2), &["error: process 0 at "]);
}

#[test]
fn a_run_without_restarts_needs_no_spare() {
    let run = Throttled::start(2, &["train.restarts=0"]);
    has(&run.spare().end().failed(2), &["a spare takes the place of a process that is lost"]);
}
