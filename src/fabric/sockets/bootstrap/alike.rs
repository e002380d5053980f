//! Checks that two processes belong to one run.

use super::message::{Alike, Hello};
use crate::fabric::processes::{binary, other_build, other_program};

impl Alike {
    /// What this process has. `program`: the config, and what else must be equal, line by line.
    pub(super) fn here(program: &str) -> Self {
        Self { version: env!("CARGO_PKG_VERSION").to_owned(), binary: *binary(), program: program.to_owned() }
    }

    /// How `who` differs from process 0, which has this. `None` if it does not.
    pub(super) fn difference(&self, who: &str, other: &Self) -> Option<String> {
        if other.binary != self.binary {
            return Some(other_build(who, [&self.version, &other.version]));
        }
        other_program(who, &self.program, &other.program)
    }
}

/// Why a process with this number cannot take part in process 0's run. `None` if it can.
pub(super) fn objection(first: &Hello, process: u32, other: &Hello) -> Option<String> {
    let who = format!("process {process}");
    if other.alike.binary != first.alike.binary {
        return first.alike.difference(&who, &other.alike);
    }
    if other.processes != first.processes {
        return Some(format!(
            "{who} was started with WORLD_SIZE {}, process 0 with {}: give all the same",
            other.processes, first.processes
        ));
    }
    if !(1..first.processes).contains(&process) {
        return Some(format!("{who} has the same number as process 0: give each its own RANK"));
    }
    if other.was_in.is_some() && other.was_in != first.was_in {
        return Some(format!(
            "{who} was in another run, which has ended: start all processes again, with --resume"
        ));
    }
    first.alike.difference(&who, &other.alike)
}

/// Says that `who` encrypts its connections and process 0 does not, or the other way round.
pub(super) fn other_tls(who: &str, tls: bool) -> String {
    format!("{who} was started with launch.tls = {tls}, process 0 with {}: give all the same", !tls)
}
