//! What all ranks of a run do at one moment.

use super::process::{Contact, ProcessState, Program};
use super::rank::RankState;
use crate::id::WorldRank;

/// What all ranks of a run do at one moment, as far as their processes answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Situation {
    /// In order.
    pub processes: Vec<ProcessState>,
}

impl Situation {
    /// The situation of one process.
    pub(crate) fn of_one(process: u32, program: Program) -> Self {
        let contact = Contact::Answers(program);
        let ranks = Vec::new();
        Self { processes: vec![ProcessState { process, ranks, contact }] }
    }

    /// The first process that answers.
    pub(crate) fn first(&self) -> Option<u32> {
        self.programs().next().map(|(process, _)| process)
    }

    /// The process that has a rank.
    pub(crate) fn home(&self, rank: WorldRank) -> Option<u32> {
        let home = self.processes.iter().find(|state| state.ranks.contains(&rank));
        home.map(|state| state.process)
    }

    /// Whether the program of a process is in a call.
    pub(crate) fn is_in_call(&self, process: u32) -> bool {
        let mut programs = self.programs();
        programs.any(|(of, program)| of == process && program.call.is_some())
    }

    /// The seconds for which nothing may move before it counts as a stall: as the most patient process says.
    pub(crate) fn usual(&self) -> Option<f64> {
        self.programs().filter_map(|(_, program)| program.usual).reduce(f64::max)
    }

    /// The processes that answer, each with its number.
    pub(super) fn programs(&self) -> impl Iterator<Item = (u32, &Program)> {
        self.processes.iter().filter_map(|state| match &state.contact {
            Contact::Answers(program) => Some((state.process, program)),
            _ => None,
        })
    }

    /// The ranks of processes that answer, each with what its program does.
    pub(super) fn ranks(&self) -> impl Iterator<Item = (&Program, &RankState)> {
        self.programs().flat_map(|(_, program)| of(program))
    }
}

fn of(program: &Program) -> impl Iterator<Item = (&Program, &RankState)> {
    program.ranks.iter().map(move |rank| (program, rank))
}
