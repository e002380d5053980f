//! Which failure counts where several processes fail.

use std::path::PathBuf;

use pipewright::error::{CheckpointError, RunError};
use pipewright::run::Interrupt;

use super::*;

fn peers(world: World) -> Peers {
    let processes = world.processes();
    let connected = fabric::ends::<Number>(world, &mesh(processes, processes), 2, ROOM);
    connected.expect("connected").1
}

/// What a process says that misses what another one has made.
fn missing() -> [Error; 3] {
    let place = PathBuf::from("made");
    let io = Error::Io { what: "open", path: place.clone(), source: std::io::ErrorKind::NotFound.into() };
    let folder = place.clone();
    [CheckpointError::NotShared { folder }.into(), RunError::NotShared(place).into(), io]
}

fn part(mine: Result<Vec<u8>>, peers: &Peers) -> String {
    peers.share("a call", mine).expect_err("one has failed").to_string()
}

#[test]
fn what_a_process_misses_is_not_the_cause_where_another_has_ended_and_may_have_removed_it() {
    for which in 0..missing().len() {
        for ends in [0, 2] {
            let said = in_processes(3, |world| {
                let mut peers = peers(world);
                let mine = match peers.process() {
                    1 => Err(missing().into_iter().nth(which).expect("one of three")),
                    _ => Ok(Vec::new()),
                };
                if peers.process() != ends {
                    return part(mine, &peers);
                }
                // It does its part, and does not wait for the others.
                let interrupt = Interrupt::new();
                interrupt.request_now();
                peers.heed(interrupt);
                let left = peers.share("a call", mine).expect_err("it was asked to end");
                peers.fail(&left);
                left.to_string()
            });
            let told = format!("process {ends}: {}", said[ends as usize]);
            for (process, said) in (0..).zip(said) {
                let expected = match process == ends {
                    true => "interrupted a second time; ",
                    false => told.as_str(),
                };
                assert!(said.starts_with(expected), "case {which}, process {process}: {said}");
            }
        }
    }
}

#[test]
fn what_a_process_misses_is_the_cause_where_no_other_fails() {
    for which in 0..missing().len() {
        let said = in_processes(3, |world| {
            let peers = peers(world);
            match peers.process() {
                1 => part(Err(missing().into_iter().nth(which).expect("one of three")), &peers),
                _ => part(Ok(Vec::new()), &peers),
            }
        });
        let cause = missing()[which].to_string();
        let told = format!("process 1: {cause}");
        assert_eq!(said, [told.clone(), cause, told]);
    }
}
