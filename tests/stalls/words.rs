//! Situations that no test can make: who is the cause, and how it is told.

use pipewright::id::StageId;
use pipewright::situation::{Awaited, Contact, Doing, Part, ProcessState, Program, RankState, Waits};

use super::*;

/// A rank in the backward pass of micro-batch 3 in its stage.
fn rank(number: u32, waits: Waits, seconds: f64) -> RankState {
    RankState {
        rank: WorldRank(number),
        doing: Doing::Action {
            index: 7,
            action: format!("{number}B3"),
            stage: StageId(number),
            layers: None,
        },
        waits,
        seconds,
    }
}

/// A rank that waits for the next one.
fn waiting(number: u32, seconds: f64) -> RankState {
    let wanted = Awaited::Gradient(MicroBatch(3));
    rank(number, Waits::Rank(WorldRank(number + 1), wanted), seconds)
}

/// A process with one rank of its number.
fn process(number: u32, contact: Contact) -> ProcessState {
    ProcessState { process: number, ranks: vec![WorldRank(number)], contact }
}

/// A process that is in a step, and does not hear these others.
fn training(rank: RankState, unheard: &[u32]) -> Contact {
    Contact::Answers(Program {
        call: Some("training".to_owned()),
        part: Part::Ranks,
        seconds: 30.0,
        usual: Some(5.0),
        unheard: unheard.to_vec(),
        source: "a file".to_owned(),
        ranks: vec![rank],
    })
}

fn silent(machine: Option<bool>) -> Contact {
    let seconds = 51.0;
    Contact::Silent { seconds, machine }
}

#[test]
fn a_dead_link_between_two_processes_that_a_third_one_hears_is_named() {
    let situation = Situation {
        processes: vec![
            process(0, training(waiting(0, 20.0), &[])),
            process(1, training(waiting(1, 21.0), &[2])),
            process(2, training(rank(2, Waits::Rank(WorldRank(1), Awaited::Room), 22.0), &[1])),
        ],
    };
    let roots = situation.roots(10.0).expect("nobody moves");
    assert_eq!(roots, [Root::Link(1, 2)]);
    assert_eq!(
        situation.explain(&roots),
        "processes 1 and 2 do not hear each other: the network between them has failed; rank 0 (process 0) \
         has waited for rank 1's gradient of micro-batch 3 for 20.0 s, in 0B3 (stage 0); rank 1 (process 1) \
         has waited for rank 2's gradient of micro-batch 3 for 21.0 s, in 1B3 (stage 1); rank 2 (process 2) \
         has waited for rank 1 to take what it is sent for 22.0 s, in 2B3 (stage 2)"
    );
}

#[test]
fn ranks_that_all_wait_for_each_other_are_told_as_that() {
    let first = process(0, training(waiting(0, 20.0), &[]));
    let second = rank(1, Waits::Rank(WorldRank(0), Awaited::Block), 19.0);
    let situation = Situation { processes: vec![first, process(1, training(second, &[]))] };
    assert_eq!(situation.roots(19.5), None, "one has moved since");
    let roots = situation.roots(19.0).expect("nobody moves");
    assert_eq!(roots, []);
    let told = situation.explain(&roots);
    assert!(told.starts_with("all ranks wait for each other; rank 0 "), "{told}");
    has(&told, &["rank 1 (process 1) has waited for a block of rank 0 for 19.0 s"]);
}

#[test]
fn a_rank_that_moves_slowly_is_no_stall_for_those_who_wait_for_it() {
    let situation = Situation {
        processes: vec![
            process(0, training(waiting(0, 100.0), &[])),
            process(1, training(rank(1, Waits::Not, 0.2), &[])),
        ],
    };
    assert_eq!(situation.roots(5.0), None);
}

#[test]
fn of_many_ranks_that_wait_some_are_told_and_the_others_counted() {
    let mut processes: Vec<_> =
        (0..63).map(|number| process(number, training(waiting(number, 50.0), &[]))).collect();
    processes.push(process(63, silent(Some(false))));
    let situation = Situation { processes };
    let roots = situation.roots(5.0).expect("nobody moves");
    assert_eq!(roots, [Root::Silent(63)]);
    let told = situation.explain(&roots);
    assert!(told.starts_with(
        "process 63 (rank 63) does not answer, and nothing has come from it for 51.0 s: its machine does not \
             answer either, so that or the network has failed; "
    ));
    assert!(told.ends_with("; and 55 more ranks") && told.len() < 1500, "{told}");
    assert_eq!(situation.to_string().lines().count(), 64, "each has a line if it is asked for");
}
