//! A rank's end of a fabric.

use super::{Call, Tag};
use crate::error::Result;
use crate::id::WorldRank;

/// One rank's end of the connections to all other ranks.
///
/// Dropping it tells every peer that this rank has stopped: their calls then fail with
/// [`crate::Error::PeerGone`].
pub trait Transport<W>: 'static {
    /// The rank this end belongs to.
    fn rank(&self) -> WorldRank;

    /// The number of ranks.
    fn ranks(&self) -> u32;

    /// Begins a call. Whatever is sent from now on belongs to it, and whatever came for an earlier call and
    /// was not taken is dropped. What a quicker peer sends for a later call waits until that call begins
    /// here.
    ///
    /// A later attempt also makes an end usable again whose peers have stopped, or that has stopped itself,
    /// in an earlier attempt. Ranks of a process that has ended stay away.
    ///
    /// Every rank begins the same calls, in the same order. It neither allocates nor waits.
    ///
    /// # Errors
    /// [`crate::error::FabricError::LeftOver`] when a wire of an earlier call was announced whose numbers a
    /// carrier still has to bring: they would be taken for the numbers of the next one.
    fn begin(&mut self, call: Call) -> Result<()>;

    /// Tells every peer that this rank has stopped, as dropping the end does. [`Transport::begin`] with a
    /// later attempt makes it usable again.
    fn stop(&mut self);

    /// Whether wires to a rank and from it go from device to device: handed over inside the process, or
    /// carried by what a fabric has for that. Both ends say the same, from the start on.
    fn is_direct(&self, _peer: WorldRank) -> bool {
        true
    }

    /// Makes connections that a fabric needs beyond those it has: for the schedule's transfers, and to and
    /// from `partners`, whose tied gradients are summed with this rank's. Called once, on the rank's own
    /// thread, by all ranks at about the same time, before anything is sent.
    ///
    /// # Errors
    /// Whatever the fabric reports, as that a peer does not come in time.
    fn start(&mut self, _partners: &[WorldRank]) -> Result<()> {
        Ok(())
    }

    /// Whether all peers and connections are well: for a rank that waits for something else, such as its
    /// device.
    ///
    /// # Errors
    /// [`crate::Error::PeerGone`] once any peer has stopped, or whatever the fabric has noticed.
    fn check(&mut self) -> Result<()> {
        Ok(())
    }

    /// Sends a wire without waiting for its receiver.
    ///
    /// # Errors
    /// [`crate::Error::PeerGone`], or [`crate::Error::Fabric`] when the wire cannot be written.
    fn send(&mut self, peer: WorldRank, tag: Tag, wire: W) -> Result<()>;

    /// Announces that [`Transport::wait`] will ask for this wire. A fabric that needs no notice ignores it.
    ///
    /// # Errors
    /// Whatever the fabric reports.
    fn post_recv(&mut self, _peer: WorldRank, _tag: Tag) -> Result<()> {
        Ok(())
    }

    /// A wire of the call that has begun, if it has come. An end that cannot say so without waiting says no.
    ///
    /// # Errors
    /// As for [`Transport::wait`].
    fn poll(&mut self, _peer: WorldRank, _tag: Tag) -> Result<Option<W>> {
        Ok(None)
    }

    /// Waits for a wire of the call that has begun.
    ///
    /// # Errors
    /// [`crate::Error::PeerGone`] once any peer has stopped: the call cannot end any more.
    /// [`crate::Error::Fabric`] when a wire could not be written by its sender, or not be read here.
    fn wait(&mut self, peer: WorldRank, tag: Tag) -> Result<W>;

    /// Sends a block of host memory; blocks between two ranks arrive in order.
    ///
    /// # Errors
    /// [`crate::Error::PeerGone`].
    fn send_bytes(&mut self, peer: WorldRank, bytes: Vec<u8>) -> Result<()>;

    /// Waits for a peer's next block of the call that has begun.
    ///
    /// # Errors
    /// As for [`Transport::wait`].
    fn recv_bytes(&mut self, peer: WorldRank) -> Result<Vec<u8>>;
}
