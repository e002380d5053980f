//! Carriers: they move the numbers of wires between processes, instead of the sockets.

use super::{Alarm, Taken};
use crate::error::Result;
use crate::id::WorldRank;

/// A carrier that waits must call this again and again. Once a peer has stopped it returns an error. The
/// carrier must then stop waiting and return that error.
pub type KeepGoing<'a> = &'a mut dyn FnMut() -> Result<()>;

/// Moves the numbers of wires, for example from GPU to GPU. It belongs to one rank, and only that rank's
/// thread calls it.
///
/// The description of each wire always goes over the socket. `README.md` in this folder says what a carrier
/// must promise, and what it can rely on.
pub trait Carrier<W>: Send {
    /// Makes the connections. Each rank that has a carrier calls it once, before the first wire, at about the
    /// same time. If one of the carrier's calls may block the rank, the carrier gives the `alarm` a job that
    /// ends that call. `partners` are further ranks with which this one exchanges wires, besides those in the
    /// schedule.
    ///
    /// # Errors
    /// Whatever the carrier reports, for example that a peer does not connect in time.
    fn start(&mut self, _partners: &[WorldRank], _alarm: &Alarm, _keep_going: KeepGoing<'_>) -> Result<()> {
        Ok(())
    }

    /// Whether it carries wires to and from this partner.
    fn reaches(&self, _partner: WorldRank) -> bool {
        false
    }

    /// Queues a wire's numbers for a rank of another process, just before the description is sent. Returns
    /// whether it did; if not, the socket carries them. A rank's sends and receives are called in the order
    /// of the schedule.
    ///
    /// # Errors
    /// Whatever the carrier reports. The rank then stops.
    fn send(&mut self, peer: WorldRank, wire: &W) -> Result<bool>;

    /// Receives the wire of this description from a rank of another process. Since the description has come,
    /// the sender has queued the numbers.
    ///
    /// # Errors
    /// [`Error::PeerGone`](crate::Error::PeerGone), or whatever the carrier reports.
    fn receive(&mut self, peer: WorldRank, description: &[u8]) -> Result<W>;

    /// Whether it trades with this rank: one with the same stages in another replica, or another shard.
    fn trades_with(&self, _peer: WorldRank) -> bool {
        false
    }

    /// Queues the numbers of wires for ranks with which it trades, and the receipt of wires from others, all
    /// at once. All ranks of a trade hold the same stages in several replicas, or are shards of one rank. It
    /// needs no description, because the other ranks call it in the same order. Gives the wires, in the order
    /// of `taken`. Trades have a queue of their own.
    ///
    /// # Errors
    /// As for [`Carrier::receive`].
    fn trade(&mut self, _given: &[(WorldRank, W)], _taken: &[Taken]) -> Result<Vec<W>> {
        Ok(Vec::new())
    }

    /// Makes later work of the rank's device wait for all trades so far.
    ///
    /// # Errors
    /// Whatever the carrier reports.
    fn await_trades(&mut self) -> Result<()> {
        Ok(())
    }

    /// Checks that no queued transfer has failed.
    ///
    /// # Errors
    /// Whatever the carrier has noticed.
    fn check(&mut self) -> Result<()> {
        Ok(())
    }
}
