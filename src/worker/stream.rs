//! Blocks that wait for their turn.

use std::collections::VecDeque;

use crate::error::Result;
use crate::fabric::{Tag, Transport};
use crate::id::WorldRank;

/// What a rank has sent under one tag and nobody has used yet, in order.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) from: WorldRank,
    tag: Tag,
    pub(super) blocks: VecDeque<Vec<u8>>,
}

impl Stream {
    /// Blocks with this tag, from this rank.
    pub(super) fn new(from: WorldRank, tag: Tag) -> Self {
        Self {
            from,
            tag,
            blocks: VecDeque::new(),
        }
    }

    /// Takes in what has come. Returns whether there was anything.
    pub(super) fn take_in<W: 'static>(&mut self, transport: &mut dyn Transport<W>) -> Result<bool> {
        let before = self.blocks.len();
        while let Some(block) = transport.poll_bytes(self.from, self.tag)? {
            self.blocks.push_back(block);
        }
        Ok(self.blocks.len() > before)
    }
}
