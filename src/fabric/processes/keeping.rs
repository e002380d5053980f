//! What processes do so that a lost one can be replaced: they keep something for each other, and leave to
//! join the run again.

use std::collections::btree_map::Entry;
use std::sync::PoisonError;

use super::farewell::leave;
use super::kept::{Item, Label};
use super::peers::Peers;
use super::snapshot_sender::Giving;
use crate::ended::await_end;
use crate::error::{FabricError, Result};

impl Peers {
    /// The processes that have ended without giving a reason, as far as this one knows.
    pub(crate) fn lost(&self) -> Vec<u32> {
        self.received().lost()
    }

    /// Leaves, to join the run again: a process was lost. Returns when the threads that read have ended.
    pub(crate) fn leave(&mut self, lost: u32) {
        let loss = self.received().how_lost(lost);
        leave(&self.connections, (lost, loss));
        self.end();
    }

    /// Gives another process something to keep. It does not wait for it.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub(crate) fn give(&self, process: u32, item: Item) -> Result<()> {
        let mut giving = self.giving.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(connection) = &self.connections[process as usize] {
            let to = match giving.entry(process) {
                Entry::Occupied(to) => to.into_mut(),
                Entry::Vacant(place) => {
                    let to = Giving::to(connection);
                    place.insert(to.map_err(|source| FabricError::no_thread(process, source))?)
                }
            };
            to.give(item);
        }
        Ok(())
    }

    /// Waits until another process has given this one something.
    ///
    /// # Errors
    /// When a process has failed or was lost.
    pub(crate) fn await_kept(&self, label: &Label) -> Result<Item> {
        let mut received = self.received();
        loop {
            if let Some(item) = self.kept.get(label) {
                return Ok(item);
            }
            if let Some((_, failure)) = received.first_failure() {
                return Err(failure.error);
            }
            self.listen(&mut received, None, Vec::new())?;
        }
    }

    /// Waits for the threads, when the connections are closed.
    pub(super) fn end(&mut self) {
        self.giving.get_mut().unwrap_or_else(PoisonError::into_inner).clear();
        for reader in self.readers.drain(..) {
            // One that waits for a rank that hangs is left alone.
            await_end(reader);
        }
    }
}
