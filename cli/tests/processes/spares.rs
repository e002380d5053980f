//! Spares: they wait beside a run, and take the places of processes that are lost.

use std::time::Duration;

use super::throttled::{MANY, Throttled};
use super::{Ended, Started};
use crate::{has, worlds};

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
}

/// Ends a run in which a spare has taken the place of process 0. Returns what the spare has printed.
fn ends_with_spare(mut run: Throttled, spare: Started) -> String {
    let args = run.args.clone();
    run.running[0] = Some(spare);
    let (place, ended) = run.end_all();
    let first = ended.into_iter().map(Ended::done).next().expect("process 0");
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let whole = place.alone(&[&args[..], &["--run-dir", "whole"]].concat()).done();
    assert_eq!(first.hash(), whole.hash());
    assert_eq!(place.numbers("runs/small"), place.numbers("whole"));
    first.stdout
}

#[test]
fn one_of_the_spares_takes_the_place_of_process_0() {
    let mut run = Throttled::start(3, &["pipeline.stages=3"]);
    // The first one that comes.
    let heir = run.heir(&[]);
    heir.await_printed("\n");
    let other = run.spare();
    other.await_printed("\n");
    run.await_step(8);
    run.kill(0);
    let said = ends_with_spare(run, heir);
    has(&said, &["takes the place of process 0\n", "this process takes the place of process 0"]);
    // It waits beside the run of the new process 0.
    assert_eq!(printed_since(other), "the run has ended\n");
}

#[test]
fn an_heir_that_has_died_is_followed_by_another_spare() {
    let mut run = Throttled::start(2, &[]);
    let mut dead = run.spare();
    dead.await_printed("\n");
    let heir = run.heir(&[]);
    heir.await_printed("\n");
    dead.child.kill().unwrap();
    dead.child.wait().unwrap();
    run.await_step(8);
    // Process 0 looks fifty times a second whether its heir is there.
    std::thread::sleep(Duration::from_secs(2));
    run.kill(0);
    has(&ends_with_spare(run, heir), &["takes the place of process 0\n"]);
}

/// As if they were on two hosts: the spare listens at the second address first.
#[test]
fn another_process_0_may_listen_at_another_address() {
    let port = worlds::free_address();
    let port = port.rsplit_once(':').expect("a port").1;
    let [first, second] = [2, 3].map(|host| format!("127.0.0.{host}:{port}"));
    let addresses = format!("launch.address={first}, {second}");
    let mut run = Throttled::start(3, &["pipeline.stages=3", &addresses]);
    let addresses = format!("launch.address={second},{first}");
    let heir = run.heir(&["--set", &addresses]);
    heir.await_printed("\n");
    run.await_step(8);
    run.kill(0);
    has(&ends_with_spare(run, heir), &["takes the place of process 0\n"]);
}

#[test]
fn a_run_without_restarts_needs_no_spare() {
    let run = Throttled::start(2, &["train.restarts=0"]);
    has(&run.spare().end().failed(2), &["a spare takes the place of a process that is lost"]);
}
