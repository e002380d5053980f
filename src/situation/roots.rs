//! The ranks that hold the others up.

use super::process::{Contact, Part, Program};
use super::rank::Doing;
use super::whole::Situation;
use crate::id::WorldRank;

/// One who holds the others up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Root {
    /// A rank that does not come to the end of what it does, and waits for no other rank.
    Rank(WorldRank),
    /// A process that does not answer.
    Silent(u32),
    /// Two processes that do not hear each other, though each answers another one: the link between them is
    /// dead.
    Link(u32, u32),
    /// A process whose program is not where the others wait for it.
    Program(u32),
}

impl Situation {
    /// Those who hold the others up, if there is a stall: a rank has not moved for `seconds` and waits for no
    /// other one, or nobody at all has moved for that time. `Some` of nothing: all wait for each other.
    pub fn roots(&self, seconds: f64) -> Option<Vec<Root>> {
        let mut roots: Vec<Root> = self
            .ranks()
            .filter(|(_, rank)| rank.is_busy() && rank.seconds >= seconds)
            .map(|(_, rank)| Root::Rank(rank.rank))
            .collect();
        let still = self.still()?;
        if roots.is_empty() && still < seconds {
            return None;
        }
        roots.extend(self.silent());
        roots.extend(self.dead_links());
        if roots.is_empty() {
            let away = self.programs().filter(|(_, program)| is_away(program));
            roots.extend(away.map(|(process, _)| Root::Program(process)));
        }
        Some(roots)
    }

    /// For how many seconds nothing at all has moved. `None` if nobody is in a call.
    pub fn still(&self) -> Option<f64> {
        let mut programs = self.programs().map(|(_, program)| program).peekable();
        programs.peek()?;
        if self.programs().all(|(_, program)| program.call.is_none()) {
            return None;
        }
        Some(programs.map(still).fold(f64::INFINITY, f64::min))
    }

    /// Whether the process of one who held the others up answers.
    pub(crate) fn answers(&self, root: Root) -> bool {
        let home = match root {
            Root::Link(process, _) => Some(process),
            root => self.process_of(root),
        };
        self.programs().any(|(process, _)| Some(process) == home)
    }

    /// The one process that holds the others up. `None` for a link.
    pub(crate) fn process_of(&self, root: Root) -> Option<u32> {
        match root {
            Root::Rank(rank) => self.home(rank),
            Root::Silent(process) | Root::Program(process) => Some(process),
            Root::Link(..) => None,
        }
    }

    /// The processes that answer and do not hear each other.
    fn dead_links(&self) -> Vec<Root> {
        let answers = |other: &u32| self.programs().any(|(process, _)| process == *other);
        let mut links: Vec<(u32, u32)> = Vec::new();
        for (process, program) in self.programs() {
            let unheard = program.unheard.iter().copied().filter(answers);
            links.extend(unheard.map(|other| (process.min(other), process.max(other))));
        }
        links.sort_unstable();
        links.dedup();
        links.into_iter().map(|(one, other)| Root::Link(one, other)).collect()
    }

    fn silent(&self) -> impl Iterator<Item = Root> {
        self.processes
            .iter()
            .filter(|state| matches!(state.contact, Contact::Silent { .. } | Contact::NotLaunched { .. }))
            .map(|state| Root::Silent(state.process))
    }
}

/// For how many seconds nothing in a process has moved.
fn still(program: &Program) -> f64 {
    let ranks = program.ranks.iter();
    let working = ranks.filter(|rank| rank.doing != Doing::Nothing);
    let still = working.map(|rank| rank.seconds).reduce(f64::min);
    still.unwrap_or(program.seconds)
}

/// Whether others may wait for this program itself: its ranks have nothing to do, and it does not wait for
/// other processes.
fn is_away(program: &Program) -> bool {
    let rests = program.ranks.iter().all(|rank| rank.doing == Doing::Nothing);
    rests && (program.call.is_none() || program.part != Part::Processes)
}
