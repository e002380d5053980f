//! The lines of a process of a hub.

use std::io::{Error, ErrorKind, Result};

use pipewright::error::ProcessLoss;
use pipewright::fabric::line::{Aside, Feed, Line, Lines};
use pipewright::fabric::{Gone, World};
use pipewright::run::Interrupt;

use super::hub::{Hub, shown};
use crate::*;

/// A process in one of its lives and worlds.
#[derive(Clone)]
pub(super) struct Living {
    pub(super) hub: Arc<Hub>,
    pub(super) process: usize,
    /// The number of the world.
    pub(super) world: u64,
    /// How often the process had died before.
    pub(super) life: u64,
}

impl Living {
    /// Its world, of this many processes.
    pub(super) fn connect(self, processes: u32, goes_on: bool) -> World {
        let line = |to: usize| {
            let line = || Arc::new(HubLine { from: self.clone(), to }) as Arc<dyn Line>;
            (to != self.process).then(line)
        };
        let (opens, joins) = (self.clone(), self.clone());
        let lines = Lines {
            lines: (0..processes as usize).map(line).collect(),
            start: Box::new(move |from, _| {
                opens.hub.read_by(opens.world, opens.process, from);
                Ok(())
            }),
            feed: Some(Arc::new(self.clone())),
            local: (0..processes).collect(),
            aside: Arc::new(Aside::new(processes)),
        };
        let again = move |_: Gone<'_>, _: &Interrupt| joins.hub.join(joins.process);
        World::by_lines(self.process as u32, lines, Duration::MAX).with_return(again, goes_on)
    }
}

/// No thread reads: the process waits for its turn, and takes what has come.
impl Feed for Living {
    fn feed(&self, _: &dyn Fn() -> bool) -> bool {
        self.hub.wait(self.process, self.life);
        true
    }

    fn waits(&self) -> bool {
        true
    }
}

struct HubLine {
    from: Living,
    to: usize,
}

impl Line for HubLine {
    fn send(&self, bytes: &[u8]) -> Result<usize> {
        let Living { hub, process: from, world, life } = &self.from;
        let line = (*world, *from, self.to);
        let mut state = hub.lock();
        let is_dead = state.is_over || state.processes[*from].deaths != *life;
        // What a reader sends belongs to no moment of the process.
        let dies = !is_dead && !state.moves && state.dies(*from);
        if is_dead || dies || !state.is_open(line) {
            drop(hub.go_on(state));
            return Err(Error::from(ErrorKind::BrokenPipe));
        }
        state.note(*from, What::Says(format!("-> {}  {}", self.to, shown(bytes))));
        state.send(line, Some(bytes.to_vec()));
        Ok(bytes.len())
    }

    fn waits(&self) -> bool {
        false
    }

    fn limit(&self, _: Duration) -> Result<()> {
        Ok(())
    }

    fn close(&self) {
        let Living { hub, process: from, world, life } = &self.from;
        let (line, back) = ((*world, *from, self.to), (*world, self.to, *from));
        let mut state = hub.lock();
        let is_dead = state.is_over || state.processes[*from].deaths != *life;
        if !is_dead && state.is_open(line) {
            state.note(*from, What::Says(format!("closes its line to {}", self.to)));
            state.send(line, None);
            state.cut(back);
        }
    }

    fn loss(&self) -> ProcessLoss {
        ProcessLoss::Closed
    }

    fn say(&self, _: &[u8]) {}
}
