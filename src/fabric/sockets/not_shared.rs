//! Memory that two processes share: this system has none.

use std::io;

/// There is none.
pub(super) enum Shared {}

impl Shared {
    pub(super) fn put(&self, _: &[u8]) -> Option<u64> {
        match *self {}
    }

    pub(super) fn take(&self, _: u64, _: usize, _: &mut Vec<u8>) -> io::Result<()> {
        match *self {}
    }
}
