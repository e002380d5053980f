//! A situation in words.

use std::fmt::{self, Write};

use super::process::{Contact, Part, ProcessState, Program};
use super::rank::{Doing, RankState, Waits};
use super::roots::Root;
use super::whole::Situation;
use crate::id::WorldRank;

/// The most waiting ranks that are told one by one. The others are counted.
const TOLD: usize = 8;

impl Situation {
    /// What those do who hold the others up, and who waits for whom, in one sentence.
    pub fn explain(&self, roots: &[Root]) -> String {
        let mut said: Vec<String> = roots.iter().filter_map(|root| self.tell(*root)).collect();
        if said.is_empty() {
            said.push("all ranks wait for each other".to_owned());
        }
        let is_root = |rank: WorldRank| roots.contains(&Root::Rank(rank));
        let mut others: Vec<_> =
            self.ranks().filter(|(_, rank)| rank.doing != Doing::Nothing && !is_root(rank.rank)).collect();
        // Those who wait for the first root come first.
        let waits_for_root = |rank: &RankState| matches!(rank.waits, Waits::Rank(on, _) if is_root(on));
        others.sort_by_key(|(_, rank)| !waits_for_root(rank));
        let (told, counted) = others.split_at(others.len().min(TOLD));
        said.extend(told.iter().map(|(program, rank)| self.line(program, rank)));
        if !counted.is_empty() {
            said.push(format!("and {} more ranks", counted.len()));
        }
        said.join("; ")
    }

    /// What one does who holds the others up.
    fn tell(&self, root: Root) -> Option<String> {
        match root {
            Root::Rank(of) => {
                let (program, rank) = self.ranks().find(|(_, rank)| rank.rank == of)?;
                Some(self.line(program, rank))
            }
            Root::Link(one, other) => Some(format!(
                "processes {one} and {other} do not hear each other: the network between them has failed"
            )),
            Root::Silent(of) | Root::Program(of) => {
                let state = self.processes.iter().find(|state| state.process == of)?;
                Some(state.to_string())
            }
        }
    }

    /// What a rank does, such as `rank 2 (process 1) has been in 3B7 (stage 3) for 12.3 s`.
    fn line(&self, program: &Program, rank: &RankState) -> String {
        let RankState { waits, doing, seconds, .. } = rank;
        let name = self.name(rank.rank);
        let call = program.call.as_deref().unwrap_or("a call");
        let place = match doing {
            Doing::Nothing => return format!("{name} has nothing to do"),
            Doing::Call => format!("at `{call}`"),
            Doing::Action { .. } => format!("in {doing}"),
        };
        match waits {
            Waits::Not => format!("{name} has been {place} for {seconds:.1} s"),
            Waits::Data { .. } => format!(
                "{name} has waited for {waits} of the data for {seconds:.1} s, {place}: its source, {}, does \
                 not give it",
                program.source
            ),
            _ => format!("{name} has waited for {waits} for {seconds:.1} s, {place}"),
        }
    }

    /// A rank, with its process if there are several.
    fn name(&self, rank: WorldRank) -> String {
        match self.home(rank).filter(|_| self.processes.len() > 1) {
            Some(process) => format!("rank {rank} (process {process})"),
            None => format!("rank {rank}"),
        }
    }
}

/// A line for each rank, and one for each process that does not answer or whose ranks have nothing to do.
impl fmt::Display for Situation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines = String::new();
        for state in &self.processes {
            let mut rests = true;
            if let Contact::Answers(program) = &state.contact {
                for rank in program.ranks.iter().filter(|rank| rank.doing != Doing::Nothing) {
                    rests = false;
                    writeln!(lines, "{}", self.line(program, rank))?;
                }
            }
            if rests {
                writeln!(lines, "{state}")?;
            }
        }
        f.write_str(lines.trim_end())
    }
}

/// What a process does whose ranks tell nothing.
impl fmt::Display for ProcessState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} (", self.process)?;
        match &self.ranks[..] {
            [one] => write!(f, "rank {one})")?,
            [first, .., last] => write!(f, "ranks {first} to {last})")?,
            [] => write!(f, "no rank)")?,
        }
        match &self.contact {
            Contact::Answers(program) => write!(f, " {program}"),
            Contact::NotLaunched { seconds } => write!(
                f,
                " has not launched its pipeline in {seconds:.1} s: it may still open its data, or it is \
                 stopped"
            ),
            Contact::Silent { seconds, machine } => {
                let why = match machine {
                    Some(true) => "its machine answers, so it is stopped, or gets no core",
                    Some(false) => "its machine does not answer either, so that or the network has failed",
                    None => "it is stopped, or its machine or the network has failed",
                };
                write!(f, " does not answer, and nothing has come from it for {seconds:.1} s: {why}")
            }
            Contact::Ended => write!(f, " has ended"),
        }
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.seconds;
        match (&self.call, self.part) {
            (None, _) => write!(
                f,
                "has been in no call of the pipeline for {seconds:.1} s: its program does something else"
            ),
            (Some(call), Part::Processes) => {
                write!(f, "has waited for other processes at `{call}` for {seconds:.1} s")
            }
            (Some(call), _) => write!(f, "has been at `{call}` for {seconds:.1} s"),
        }
    }
}
