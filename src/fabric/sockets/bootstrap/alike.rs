//! Checks that two processes belong to one run.

use super::Hello;

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
    difference(&first.program, &other.program).map(|difference| {
        format!(
            "{who} was started with another config: {difference}; start all with the same config and options"
        )
    })
}

/// The first line that differs, with its section.
fn difference(first: &str, other: &str) -> Option<String> {
    if first == other {
        return None;
    }
    let (mut ours, mut theirs) = (first.lines(), other.lines());
    let mut section = String::new();
    loop {
        let pair = (ours.next(), theirs.next());
        if let (Some(our), Some(their)) = pair
            && our == their
        {
            if our.starts_with('[') {
                section = format!("{our} ");
            }
            continue;
        }
        let shown = |line: Option<&str>| {
            line.map_or_else(|| "nothing".to_owned(), |line| format!("`{section}{line}`"))
        };
        return Some(format!("it has {}, process 0 {}", shown(pair.1), shown(pair.0)));
    }
}
