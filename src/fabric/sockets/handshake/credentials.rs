//! What a process proves itself by.

use super::key::Key;
use super::messages::Purpose;

/// What a process needs to prove, and to check proofs.
#[derive(Clone)]
pub(in crate::fabric::sockets) struct Gate {
    pub(in crate::fabric::sockets) process: u32,
    /// Whether connections are encrypted once both have proved who they are.
    pub(in crate::fabric::sockets) tls: bool,
    pub(in crate::fabric::sockets) key: Key,
    /// The key of this run, once process 0 has told it.
    pub(in crate::fabric::sockets) run: Option<Key>,
}

impl Gate {
    /// The key of connections for this purpose. `None` if this process takes no such connection now.
    pub(super) fn key(&self, purpose: Purpose) -> Option<&Key> {
        match purpose {
            Purpose::Join | Purpose::Spare => Some(&self.key),
            Purpose::Data | Purpose::Watch => self.run.as_ref(),
        }
    }
}
