//! How ranks reach each other: see `README.md` in this folder for what a fabric must promise.

mod alarm;
mod bootstrap;
mod channel;
mod collective;
mod inbox;
mod link;
mod nccl;
mod payload;
mod peers;
mod reader;
mod wire;
mod world;

pub use alarm::Alarm;
pub use channel::{ChannelTransport, connect};
pub use collective::{Gathered, all_gather};
pub use nccl::Nccl;
pub(crate) use nccl::{GpuLinks, link};
pub use payload::{GoingOn, Payload};
pub use peers::Peers;
pub use wire::WireFrame;
pub(crate) use wire::{describe, described};
pub use world::{Membership, World, share};

use crate::error::Result;
use crate::id::Rank;

/// Names one transfer between two ranks within a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tag(pub u64);

/// One rank's end of the links to all others.
///
/// Dropping it tells every peer that this rank has stopped: their calls then fail with [`crate::Error::PeerGone`].
pub trait Transport<W>: 'static {
    /// The rank this end belongs to.
    fn rank(&self) -> Rank;

    /// The number of ranks.
    fn ranks(&self) -> u32;

    /// Whether wires to a rank and from it go from device to device: handed over inside the process, or carried by what a fabric has for
    /// that. Both ends say the same, from the start on.
    fn is_direct(&self, _peer: Rank) -> bool {
        true
    }

    /// Makes connections that a fabric needs beyond those it has: for the schedule's transfers, and to and from `partners`, whose tied gradients
    /// are summed with this rank's. Called once, on the rank's own thread, by all ranks at about the same time, before anything is sent.
    ///
    /// # Errors
    /// Whatever the fabric reports, as that a peer does not come in time.
    fn start(&mut self, _partners: &[Rank]) -> Result<()> {
        Ok(())
    }

    /// Whether all goes on: for a rank that waits for something else, such as its device.
    ///
    /// # Errors
    /// [`crate::Error::PeerGone`] once any peer has stopped, or whatever the fabric has noticed.
    fn check(&mut self) -> Result<()> {
        Ok(())
    }

    /// Sends a wire without waiting for its receiver.
    ///
    /// # Errors
    /// [`crate::Error::PeerGone`].
    fn send(&mut self, peer: Rank, tag: Tag, wire: W) -> Result<()>;

    /// Announces that [`Transport::wait`] will ask for this wire. A fabric that needs no notice ignores it.
    ///
    /// # Errors
    /// Whatever the fabric reports.
    fn post_recv(&mut self, _peer: Rank, _tag: Tag) -> Result<()> {
        Ok(())
    }

    /// Waits for a wire.
    ///
    /// # Errors
    /// [`crate::Error::PeerGone`] once any peer has stopped: the step cannot end any more.
    fn wait(&mut self, peer: Rank, tag: Tag) -> Result<W>;

    /// Sends a block of host memory; blocks between two ranks arrive in order.
    ///
    /// # Errors
    /// [`crate::Error::PeerGone`].
    fn send_bytes(&mut self, peer: Rank, bytes: Vec<u8>) -> Result<()>;

    /// Waits for the next block from a peer.
    ///
    /// # Errors
    /// [`crate::Error::PeerGone`].
    fn recv_bytes(&mut self, peer: Rank) -> Result<Vec<u8>>;
}
