//! Packets from one rank to another, and their routes.

use std::sync::Arc;

use super::{Call, Tag};
use crate::error::{FabricError, Result};
use crate::id::WorldRank;

/// One thing that a rank sends to another. It holds the two fields of its [`Call`], and not the `Call`
/// itself. So it needs no padding, and fewer bytes go from core to core.
pub(super) struct Packet<W> {
    pub(super) from: WorldRank,
    attempt: u32,
    number: u64,
    pub(super) content: Content<W>,
}

impl<W> Packet<W> {
    /// A packet of this call.
    pub(super) fn new(from: WorldRank, call: Call, content: Content<W>) -> Self {
        Self { from, attempt: call.attempt, number: call.number, content }
    }

    /// The call it belongs to.
    pub(super) fn call(&self) -> Call {
        Call { attempt: self.attempt, number: self.number }
    }
}

/// What a packet holds.
pub(super) enum Content<W> {
    /// A wire.
    Wire(Tag, W),
    /// A wire whose numbers a [`super::Carrier`] has taken. Only its description goes to the other process.
    Carried(Tag, W),
    /// The description of a wire whose numbers a [`super::Carrier`] will receive.
    Description(Tag, Vec<u8>),
    /// A block of host memory.
    Block(Tag, Vec<u8>),
    /// The rank has stopped.
    Stopped,
    /// A wire could not be written, sent or read. Or the processes make different calls.
    Failed(Arc<FabricError>),
}

/// A route from one rank to another.
pub(super) trait Route<W>: Send {
    /// Whether the other rank is in this process. Wires to it are handed over without a copy.
    fn is_near(&self) -> bool;

    /// Sends a packet. If there is no room for it now, it is returned.
    ///
    /// # Errors
    /// [`Error::PeerGone`](crate::Error::PeerGone) when the other rank cannot be reached any more;
    /// [`Error::Fabric`](crate::Error::Fabric) when a wire cannot be written.
    fn send(&self, packet: Packet<W>) -> Result<Option<Packet<W>>>;
}
