//! Checks that two processes belong to one run.

use super::message::Hello;

/// Why a process with this number cannot take part in process 0's run. `None` if it can.
pub(super) fn objection(first: &Hello, process: u32, other: &Hello) -> Option<String> {
    let who = format!("process {process}");
    if !first.alike.is_of_build(&other.alike) {
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
        return Some(other_run(&who));
    }
    first.alike.difference(&who, &other.alike)
}

/// Says that `who` was in another run.
pub(super) fn other_run(who: &str) -> String {
    format!("{who} was in another run, which has ended: start all processes again, with --resume")
}

/// Says that `who` encrypts its connections and process 0 does not, or the other way round.
pub(super) fn other_tls(who: &str, tls: bool) -> String {
    format!("{who} was started with launch.tls = {tls}, process 0 with {}: give all the same", !tls)
}
