//! Runs that go on with fewer processes, and take processes in again: the weights are the same as in an
//! undisturbed run.

use super::throttled::{LONGER, MANY, Throttled};
use super::*;

/// A run that goes on when nobody takes the place of a lost process within 2 s.
fn shrinking(size: u32, sets: &[&str]) -> Throttled {
    Throttled::start(size, &[&["launch.fewest=1", "launch.deadline=2"], sets].concat())
}

#[test]
fn the_others_hold_the_ranks_of_a_lost_process() {
    for (size, victim, layout) in [
        (2, 1, &["pipeline.stages=2"][..]),
        (3, 1, &["pipeline.stages=3"]),
        (4, 3, &["pipeline.stages=2", "pipeline.replicas=2", "optimizer.sharded=true"]),
        (4, 2, &["pipeline.stages=2", "pipeline.shards=2"]),
    ] {
        let mut run = shrinking(size, layout);
        run.await_step(8);
        run.kill(victim);
        run.running.remove(victim as usize);
        let said = run.ends_as_if_nothing_had_happened();
        let there = format!("{} of {size} processes are there after", size - 1);
        has(&said, &["then it goes on without it, with 1 process or more", &there]);
        has(&said, &["from what the processes kept in memory"]);
    }
}

#[test]
fn processes_are_lost_one_after_the_other_until_one_is_left() {
    let mut run = shrinking(4, &["pipeline.stages=4", "train.restarts=4", MANY]);
    for (step, victim, left) in [(8, 2, 3), (16, 3, 2), (24, 1, 1)] {
        run.await_step(step);
        run.kill(victim);
        has(&run.await_return(), &[&format!("{left} of 4 processes are there after")]);
    }
    run.running.truncate(1);
    run.ends_as_if_nothing_had_happened();
}

#[test]
fn a_process_comes_back_and_takes_its_ranks() {
    for size in [2, 3] {
        let stages = format!("pipeline.stages={size}");
        let mut run = shrinking(size, &[&stages, LONGER]);
        run.await_step(8);
        run.kill(1);
        run.await_return();
        run.begin(1);
        run.await_noted("all processes are there after");
        has(&run.ends_as_if_nothing_had_happened(), &["and repeats 0 steps"]);
    }
}

#[test]
fn a_spare_becomes_the_process_without_which_a_run_goes_on() {
    let mut run = shrinking(3, &["pipeline.stages=3", LONGER]);
    run.await_step(8);
    run.kill(2);
    run.await_return();
    let spare = run.spare();
    run.await_noted("all processes are there after");
    run.running[2] = Some(spare);
    run.ends_as_if_nothing_had_happened();
}

#[test]
fn a_run_that_has_lost_too_many_ends() {
    let sets = ["pipeline.stages=4", "launch.fewest=3", "launch.deadline=2", "checkpoint.every=4"];
    let mut run = Throttled::start(4, &sets);
    run.await_step(8);
    run.kill(1);
    run.kill(3);
    let said = run.running[0].take().unwrap().end().failed(1);
    has(&said, &["process 1, 3 of 4 did not come", "--resume continues from"]);
}

#[test]
fn a_process_that_has_just_come_back_is_lost_again() {
    // Snapshots are so rare that none is made in between.
    let mut run = shrinking(4, &["pipeline.stages=4", "train.snapshot_every=10000", LONGER]);
    run.await_step(8);
    run.kill(1);
    run.await_return();
    run.begin(1);
    run.await_noted("all processes are there after");
    run.kill(1);
    run.running.remove(1);
    let said = run.ends_as_if_nothing_had_happened();
    assert_eq!(said.matches("3 of 4 processes are there after").count(), 1, "{said}");
    assert!(!said.contains("from its first weights"), "{said}");
}

#[test]
fn process_0_is_replaced_in_a_run_with_fewer_processes() {
    let mut run = shrinking(3, &["pipeline.stages=3", "launch.deadline=4", MANY]);
    run.await_step(8);
    run.kill(2);
    run.await_return();
    run.kill(0);
    run.begin(0);
    run.running.remove(2);
    run.ends_as_if_nothing_had_happened();
}

#[test]
fn a_newcomer_that_cannot_take_part_does_not_end_the_run() {
    let mut run = shrinking(3, &["pipeline.stages=3", LONGER]);
    run.await_step(8);
    run.kill(1);
    run.await_return();
    // It has too little memory.
    let mut command = run.place.member(1, 3, &run.address, &run.args());
    command.env("PIPEWRIGHT_MEMORY", "1KiB");
    let newcomer = Started::new(command);
    run.await_noted("goes on without the process that waited");
    has(&newcomer.end().failed(2), &["PIPEWRIGHT_MEMORY"]);
    run.running.remove(1);
    run.ends_as_if_nothing_had_happened();
}

#[test]
fn a_process_comes_back_after_the_model_was_cut_elsewhere() {
    let mut run = shrinking(2, &[LONGER]);
    run.await_step(8);
    run.kill(1);
    run.await_return();
    let dir = pipewright::run::RunDir::at(run.place.path("runs/small"));
    dir.ask_for_cut(pipewright::run::Change::layers(vec![1, 7])).unwrap();
    run.await_noted("cut anew after ");
    run.begin(1);
    run.await_noted("all processes are there after");
    let history = fs::read_to_string(dir.history()).unwrap();
    assert!(!history.contains("with the cut at launch"), "{history}");
    run.ends_as_if_nothing_had_happened();
}
