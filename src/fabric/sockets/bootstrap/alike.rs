//! Checks that two processes belong to one run.

use super::Hello;
use crate::fabric::processes::other_program;

/// Why another process, which runs the same program, cannot take part in process 0's run. `None` if it can.
pub(super) fn objection(first: &Hello, other: &Hello) -> Option<String> {
    let who = format!("process {}", other.process);
    if other.processes != first.processes {
        return Some(format!(
            "{who} was started with WORLD_SIZE {}, process 0 with {}: give all the same",
            other.processes, first.processes
        ));
    }
    if !(1..first.processes).contains(&other.process) {
        return Some(format!(
            "{who} has the same number as process 0: give each its own RANK"
        ));
    }
    other_program(other.process, &first.program, &other.program)
}
