//! A run of several processes that hangs says who waits for whom.

use super::*;

/// Three stages. Nothing is printed that nobody reads: a full pipe would be a stall.
const THREE: [&str; 4] = ["--set", "pipeline.stages=3", "--set", "train.print_every=1000000"];

/// A long run of three processes that tells stalls soon.
fn start(place: &Place) -> Vec<Started> {
    let soon = ["--set", "pipeline.stall_warning=0.5"];
    place.start_long(3, &[&THREE[..], &soon].concat())
}

/// The events in the history of the run.
fn history(place: &Place) -> String {
    place.text("runs/small/history.jsonl")
}

/// All end, and have saved.
fn interrupt(started: Vec<Started>) {
    started[0].signal("-INT");
    for ended in end_all(started) {
        assert_eq!(ended.status, Some(130), "{}{}", ended.stdout, ended.stderr);
    }
}

#[test]
fn a_process_that_is_stopped_is_told_once_and_that_it_moves_again() {
    let place = Place::new();
    let mut started = start(&place);
    started[1].signal("-STOP");
    let said = started[0].await_said(if cfg!(target_os = "linux") {
        ": its machine answers, so it is stopped, or gets no core"
    } else {
        ": it is stopped, or its machine or the network has failed"
    });
    has(&said, &["warning: "]);
    has(&said, &["process 1 (rank 1) does not answer, and nothing has come from it for "]);
    started[1].signal("-CONT");
    let said = started[0].await_said("it moves again, after ");
    assert!(!said.contains("warning: "), "told once: {said}");
    interrupt(started);
    let noted = history(&place);
    let warning = noted.find("\"warning: ").expect("it is noted");
    let over = noted.find("\"it moves again, after ").expect("it is noted");
    assert!(warning < over, "{noted}");
}

#[test]
fn where_the_first_process_is_stopped_the_second_tells_it() {
    let place = Place::new();
    let mut started = start(&place);
    started[0].signal("-STOP");
    has(&started[1].await_said("process 0 (rank 0) does not answer"), &["process 1: warning: "]);
    started[0].signal("-CONT");
    started[1].await_said("process 1: it moves again, after ");
    interrupt(started);
}

#[test]
fn after_the_limit_a_process_that_is_stopped_ends_the_run() {
    let place = Place::new();
    let limit = ["--set", "pipeline.stall_limit=1"];
    let mut started = place.start_long(3, &[&THREE[..], &limit].concat());
    started[1].signal("-STOP");
    let stopped = started.remove(1);
    for process in [2, 0] {
        let said = started.pop().expect("two").end().failed(1);
        let cause = "a stall of 1 s: process 1 (rank 1) does not answer, and nothing has come from it for ";
        let own = format!("process {process}: error: {cause}");
        let told = format!("process {process}: error: process {}: {cause}", 2 - process);
        assert!(said.contains(&own) || said.contains(&told), "{said}");
    }
    stopped.signal("-CONT");
    has(&stopped.end().failed(1), &["process 1: error: process "]);
}

#[test]
fn usr1_prints_what_all_ranks_do_and_the_run_goes_on() {
    let place = Place::new();
    let mut started = place.start_long(3, &THREE);
    started[1].signal("-USR1");
    let said = started[1].await_said("process 2") + &started[1].await_said("\n");
    has(&said, &["what all ranks do, as process 1 sees it:\n"]);
    for process in 0..3 {
        let names =
            [format!("rank {process} (process {process})"), format!("process {process} (rank {process})")];
        assert!(names.iter().any(|name| said.contains(name)), "{said}");
    }
    interrupt(started);
}

#[test]
fn usr1_is_answered_while_another_process_is_stopped() {
    let place = Place::new();
    let mut started = place.start_long(3, &THREE);
    started[2].signal("-STOP");
    started[0].signal("-USR1");
    let said = started[0].await_said("process 2 (rank 2) does not answer");
    has(&said, &["what all ranks do, as process 0 sees it:\n"]);
    started[2].signal("-CONT");
    interrupt(started);
}

#[test]
fn usr1_asks_a_process_that_is_alone() {
    let place = Place::new();
    let mut alone = Started::new(place.train(&[&LONG[..], &THREE].concat()));
    place.await_steps();
    alone.signal("-USR1");
    alone.await_said("what all ranks do, as process 0 sees it:\n");
    interrupt(vec![alone]);
}

#[test]
fn usr1_asks_a_process_that_waits_for_the_others() {
    let place = Place::new();
    let address = worlds::free_address();
    let member = |rank| Started::new(place.member(rank, 2, &address, &[]));
    let mut first = member(0);
    first.await_printed("\n");
    first.signal("-USR1");
    let said = first.await_said("until all 2 are there for ");
    let joins = format!("it has been joining the run at {address} as process 0");
    has(&said, &[&joins]);
    for started in [member(1), first] {
        started.end().done();
    }
}

#[test]
fn usr1_asks_a_spare_and_it_goes_on_waiting() {
    let place = Place::new();
    let address = worlds::free_address();
    let args = [&LONG[..], &["--set", "train.restarts=1"]].concat();
    let member = |rank| Started::new(place.member(rank, 2, &address, &args));
    let several: Vec<_> = (0..2).map(member).collect();
    place.await_steps();
    let mut spare = Started::new(place.member(7, 9, &address, &[&args[..], &["--spare"]].concat()));
    spare.await_printed("\n");
    spare.signal("-USR1");
    has(&spare.await_said("waiting as a spare of the run at "), &["this process has no ranks now"]);
    interrupt(several);
    assert_eq!(spare.end().status, Some(0), "it ends with the run");
}
