//! The lines of a process of a hub.

use std::io::{Error, ErrorKind, Result};

use pipewright::fabric::{OwnLines, World};

use super::hub::{Hub, shown};
use crate::*;

pub(super) struct HubLines {
    pub(super) hub: Arc<Hub>,
    pub(super) process: usize,
    /// The number of the world that they connect.
    pub(super) world: u64,
    /// How often the process had died before.
    pub(super) life: u64,
}

impl OwnLines for HubLines {
    fn carry(&self, to: u32, bytes: &[u8]) -> Result<()> {
        let (from, to) = (self.process, to as usize);
        let line = (self.world, from, to);
        let mut state = self.hub.lock();
        let is_dead = state.is_over || state.processes[from].deaths != self.life;
        // What a reader sends belongs to no moment of the process.
        let dies = !is_dead && !state.moves && state.dies(from);
        if is_dead || dies || !state.is_open(line) {
            drop(self.hub.go_on(state));
            return Err(Error::from(ErrorKind::BrokenPipe));
        }
        let bytes = bytes.to_vec();
        state.note(from, What::Says(format!("-> {to}  {}", shown(&bytes))));
        state.send(line, Some(bytes));
        Ok(())
    }

    fn close(&self, to: u32) {
        let (from, to) = (self.process, to as usize);
        let mut state = self.hub.lock();
        let is_dead = state.is_over || state.processes[from].deaths != self.life;
        if !is_dead && state.is_open((self.world, from, to)) {
            state.note(from, What::Says(format!("closes its line to {to}")));
            state.send((self.world, from, to), None);
            state.cut((self.world, to, from));
        }
    }

    fn open(&self, from: Vec<Option<FromProcess>>) {
        self.hub.read_by(self.world, self.process, from);
    }

    fn await_bytes(&self) {
        self.hub.wait(self.process, self.life);
    }

    fn join_again(&self, _: &[u32]) -> pipewright::Result<World> {
        self.hub.join(self.process)
    }
}
