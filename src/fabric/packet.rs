//! What goes from one rank to another, and the way it takes.

use std::sync::Arc;

use super::{Call, Tag};
use crate::error::{FabricError, Result};
use crate::id::WorldRank;

/// What one rank sends another. It holds the fields of its [`Call`] one by one: so it has no padding, and fewer
/// bytes go from core to core.
pub(super) struct Packet<W> {
    pub(super) from: WorldRank,
    attempt: u32,
    number: u64,
    pub(super) content: Content<W>,
}

impl<W> Packet<W> {
    /// A packet of this call.
    pub(super) fn new(from: WorldRank, call: Call, content: Content<W>) -> Self {
        Self {
            from,
            attempt: call.attempt,
            number: call.number,
            content,
        }
    }

    /// The call it belongs to.
    pub(super) fn call(&self) -> Call {
        Call {
            attempt: self.attempt,
            number: self.number,
        }
    }
}

/// What a packet holds.
pub(super) enum Content<W> {
    /// A wire.
    Wire(Tag, W),
    /// A wire whose numbers a [`super::Carrier`] has taken. What arrives in another process is its
    /// description.
    Carried(Tag, W),
    /// The description of a wire whose numbers a [`super::Carrier`] brings.
    Description(Tag, Vec<u8>),
    /// A block of host memory.
    Block(Vec<u8>),
    /// The rank has stopped.
    Stopped,
    /// A wire could not be written, sent or read; or the processes do not make the same calls.
    Failed(Arc<FabricError>),
}

/// The way from one rank to another.
pub(super) trait Route<W>: Send {
    /// Whether the other rank is in this process: then wires are handed over as they are.
    fn is_near(&self) -> bool;

    /// Sends a packet. It comes back when there is no room for it now.
    ///
    /// # Errors
    /// [`crate::Error::PeerGone`] when the other rank cannot be reached any more; [`crate::Error::Fabric`]
    /// when a wire cannot be written.
    fn send(&self, packet: Packet<W>) -> Result<Option<Packet<W>>>;
}
