//! Spares: they wait beside a run, and take the places of processes that are lost.

use super::throttled::{MANY, Throttled};
use super::*;

/// Waits until process 0 knows a spare. Returns what it says then.
fn await_known(spare: &mut Started) -> String {
    let (out, mut said) = (spare.0.stdout.as_mut().unwrap(), String::new());
    while !said.ends_with('\n') {
        let mut byte = [0];
        out.read_exact(&mut byte).expect("it is known");
        said.push(char::from(byte[0]));
    }
    said
}

#[test]
fn spares_take_the_places_of_lost_processes() {
    let mut run = Throttled::start(3, &["pipeline.stages=3", MANY]);
    let mut spares = [run.spare(), run.spare(), run.spare()];
    for spare in &mut spares {
        assert_eq!(
            await_known(spare),
            format!("a spare of the run at {}\n", run.address)
        );
    }
    for (step, victim) in [(8, 2), (16, 1)] {
        run.await_step(step);
        run.kill(victim);
        run.await_return();
    }
    // The spares are processes 1 and 2 now.
    let (place, args) = (run.place.path("."), run.args.clone());
    let first = run.end_first();
    let mut said = spares.map(|spare| spare.end().done().stdout);
    said.sort();
    let takes = |process| format!("takes the place of process {process}\n");
    assert_eq!(said, [takes(1), takes(2), "the run has ended\n".to_owned()]);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let whole = first
        .0
        .alone(&[&args[..], &["--run-dir", "whole"]].concat())
        .done();
    assert_eq!(first.1.done().hash(), whole.hash(), "in {}", place.display());
    assert_eq!(first.0.numbers("runs/small"), first.0.numbers("whole"));
}

#[test]
fn a_spare_that_differs_is_refused_when_it_comes() {
    let run = Throttled::start(2, &[]);
    let mut spare = run.spare();
    await_known(&mut spare);
    for (more, expected) in [
        (
            ["--set", "train.snapshot_every=6"],
            "it has `[train] snapshot_every = 6`, process 0 `[train] snapshot_every = 5`",
        ),
        (
            ["--steps", "7"],
            "it has `[options] --steps 7`, process 0 `[options] --steps no`",
        ),
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
    assert_eq!(spare.end().done().stdout, "the run has ended\n");
}

#[test]
fn a_spare_that_has_died_is_passed_over() {
    let mut run = Throttled::start(2, &[]);
    let mut spares = [run.spare(), run.spare()];
    for spare in &mut spares {
        await_known(spare);
    }
    let [living, mut dead] = spares;
    dead.0.kill().unwrap();
    dead.0.wait().unwrap();
    run.await_step(8);
    run.kill(1);
    let (_, ended) = run.end_first();
    ended.done();
    assert_eq!(living.end().done().stdout, "takes the place of process 1\n");
}

#[test]
fn a_spare_ends_with_its_run() {
    let run = Throttled::start(2, &[]);
    let mut spare = run.spare();
    await_known(&mut spare);
    let (_, ended) = run.end();
    ended.into_iter().for_each(|process| drop(process.done()));
    assert_eq!(spare.end().done().stdout, "the run has ended\n");

    let mut run = Throttled::start(2, &[]);
    let mut spare = run.spare();
    await_known(&mut spare);
    run.kill(0);
    let said = spare.end().failed(2);
    assert!(said.contains("error: process 0 at "), "{said}");
}

#[test]
fn a_run_without_restarts_needs_no_spare() {
    let run = Throttled::start(2, &["train.restarts=0"]);
    let said = run.spare().end().failed(2);
    assert!(
        said.contains("a spare takes the place of a process that is lost"),
        "{said}"
    );
}
