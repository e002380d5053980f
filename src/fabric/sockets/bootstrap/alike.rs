//! Checks that two processes belong to one run.

use super::message::Hello;
use crate::fabric::processes::{other_build, other_program};

/// Why a process with this number cannot take part in process 0's run. `None` if it can.
pub(super) fn objection(first: &Hello, process: u32, other: &Hello) -> Option<String> {
    if other.binary != first.binary {
        return Some(other_build(process, [&first.version, &other.version]));
    }
    if other.processes != first.processes {
        return Some(format!(
            "process {process} was started with WORLD_SIZE {}, process 0 with {}: give all the same",
            other.processes, first.processes
        ));
    }
    if !(1..first.processes).contains(&process) {
        return Some(format!(
            "process {process} has the same number as process 0: give each its own RANK"
        ));
    }
    if other.was_in.is_some() && other.was_in != first.was_in {
        return Some(format!(
            "process {process} was in another run, which has ended: start all processes again, with --resume"
        ));
    }
    other_program(process, &first.program, &other.program)
}

/// Says that a process encrypts its connections and process 0 does not, or the other way round.
pub(super) fn other_tls(process: u32, tls: bool) -> String {
    format!(
        "process {process} was started with launch.tls = {tls}, process 0 with {}: give all the same",
        !tls
    )
}
