//! A rank's end of a fabric.

use pipewright_stages::{DType, Shape};

use super::{Call, Tag};
use crate::error::Result;
use crate::id::WorldRank;

/// A tensor that a rank takes in a [trade](Transport::trade): from whom, and which.
pub type Taken = (WorldRank, Shape, DType);

/// One rank's end of the connections to all other ranks.
///
/// Dropping it tells every peer that this rank has stopped: their calls then fail with
/// [`Error::PeerGone`](crate::Error::PeerGone).
pub trait Transport<W>: 'static {
    /// The rank this end belongs to.
    fn rank(&self) -> WorldRank;

    /// The number of ranks.
    fn ranks(&self) -> u32;

    /// Begins a call. Whatever is sent from now on belongs to it. Whatever came for an earlier call and was
    /// not taken is dropped. Whatever a faster peer sends for a later call waits until that call begins here.
    ///
    /// An end cannot be used any more when it or one of its peers has stopped. A later attempt makes it
    /// usable again, except in two cases: a process with some of the ranks has ended, or the end has a
    /// carrier.
    ///
    /// Every rank begins the same calls, in the same order. The call neither allocates nor waits.
    ///
    /// # Errors
    /// [`FabricError::Failed`](crate::error::FabricError::Failed) when a wire of an earlier call was
    /// announced, and a carrier still has its numbers. The next receive would take them for its own. For the
    /// same reason, the same error when an end with a carrier begins a later attempt.
    fn begin(&mut self, call: Call) -> Result<()>;

    /// The rank has done its part of the call. It does nothing more until it begins the next one. Ends that
    /// only carry wires need not know this.
    fn end(&mut self) {}

    /// What comes in this call, which is about to begin, is kept, so that the rank can
    /// [begin](Transport::begin) it again: then it is given the same once more, and what it sends a second
    /// time is dropped. Only a [`super::Recorded`] end can do this. Others do nothing here.
    fn keep(&mut self, _call: Call) {}

    /// How many bytes are kept.
    fn kept(&self) -> u64 {
        0
    }

    /// Drops all that was kept: no call so far will begin again.
    fn forget(&mut self) {}

    /// Tells every peer that this rank has stopped, as dropping the end does. [`Transport::begin`] with a
    /// later attempt makes it usable again.
    fn stop(&mut self);

    /// Whether wires to and from a rank stay on devices: handed over inside the process, or moved by a
    /// carrier. Both ends give the same answer, from the start on.
    fn is_direct(&self, _peer: WorldRank) -> bool {
        true
    }

    /// Makes further connections that a fabric needs: for the schedule's transfers, and for `partners`, whose
    /// tied gradients are summed with this rank's. All ranks call it once, each on its own thread, at about
    /// the same time, before anything is sent.
    ///
    /// # Errors
    /// Whatever the fabric reports, for example that a peer does not connect in time.
    fn start(&mut self, _partners: &[WorldRank]) -> Result<()> {
        Ok(())
    }

    /// Checks that all peers and connections are well. For a rank that waits for something else, such as its
    /// device.
    ///
    /// # Errors
    /// [`Error::PeerGone`](crate::Error::PeerGone) once any peer has stopped, or whatever the fabric has
    /// noticed.
    fn check(&mut self) -> Result<()> {
        Ok(())
    }

    /// Sends a wire without waiting for its receiver.
    ///
    /// # Errors
    /// [`Error::PeerGone`](crate::Error::PeerGone), or [`Error::Fabric`](crate::Error::Fabric) when the wire
    /// cannot be written.
    fn send(&mut self, peer: WorldRank, tag: Tag, wire: W) -> Result<()>;

    /// Announces that [`Transport::wait`] will ask for this wire. Some fabrics ignore it.
    ///
    /// # Errors
    /// Whatever the fabric reports.
    fn post_recv(&mut self, _peer: WorldRank, _tag: Tag) -> Result<()> {
        Ok(())
    }

    /// A wire of the current call, if it has arrived. `None` also if the end cannot know that without
    /// waiting.
    ///
    /// # Errors
    /// As for [`Transport::wait`].
    fn poll(&mut self, _peer: WorldRank, _tag: Tag) -> Result<Option<W>> {
        Ok(None)
    }

    /// Waits for a wire of the current call.
    ///
    /// # Errors
    /// [`Error::PeerGone`](crate::Error::PeerGone) once any peer has stopped, because the call cannot end
    /// then. [`Error::Fabric`](crate::Error::Fabric) when the sender could not write the wire, or it cannot
    /// be read here.
    fn wait(&mut self, peer: WorldRank, tag: Tag) -> Result<W>;

    /// Whether a carrier moves what this end [trades](Transport::trade) with a rank. Both ends give the same
    /// answer.
    fn trades_with(&self, _peer: WorldRank) -> bool {
        false
    }

    /// Sends a wire to each of some ranks, and announces one from each of others, which [`Transport::wait`]
    /// gives. `taken` says from whom, and what. Ranks that hold the same stages in several replicas call it,
    /// all in the same order, and so do the shards of a rank. It does not wait for the others.
    ///
    /// # Errors
    /// As for [`Transport::send`].
    fn trade(&mut self, tag: Tag, given: Vec<(WorldRank, W)>, _taken: &[Taken]) -> Result<()> {
        let mut given = given.into_iter();
        given.try_for_each(|(peer, wire)| self.send(peer, tag, wire))
    }

    /// Makes later work of the rank's device wait until all that it has given in trades is sent.
    ///
    /// # Errors
    /// Whatever the fabric reports.
    fn await_trades(&mut self) -> Result<()> {
        Ok(())
    }

    /// Sends a block of host memory. Blocks of one tag between two ranks arrive in order.
    ///
    /// # Errors
    /// [`Error::PeerGone`](crate::Error::PeerGone).
    fn send_bytes(&mut self, peer: WorldRank, tag: Tag, bytes: Vec<u8>) -> Result<()>;

    /// Waits for a peer's next block of the current call with this tag.
    ///
    /// # Errors
    /// As for [`Transport::wait`].
    fn recv_bytes(&mut self, peer: WorldRank, tag: Tag) -> Result<Vec<u8>>;

    /// A peer's next block of the current call with this tag, if it has arrived.
    ///
    /// # Errors
    /// As for [`Transport::wait`].
    fn poll_bytes(&mut self, peer: WorldRank, tag: Tag) -> Result<Option<Vec<u8>>>;

    /// Waits until something has arrived, from any peer.
    ///
    /// # Errors
    /// As for [`Transport::wait`].
    fn listen(&mut self) -> Result<()>;
}
