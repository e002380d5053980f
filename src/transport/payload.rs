//! What carries the numbers of wires between processes when the sockets do not.

use crate::error::Result;
use crate::id::Rank;

/// A carrier of numbers: between GPUs, say. It belongs to one rank, whose thread alone calls it.
///
/// The header of each wire (tag, description) goes over the socket whoever carries the numbers. `README.md` in this folder says what
/// a carrier can rely on and what it must promise.
pub trait Payload<W>: Send {
    /// Queues a wire's numbers for a rank of another process, and gives whether it did: false leaves them to the socket. Called
    /// right before the header is sent, in the order of the schedule.
    ///
    /// # Errors
    /// Whatever the carrier reports; the rank stops.
    fn send(&mut self, peer: Rank, wire: &W) -> Result<bool>;

    /// Receives the wire of this description from a rank of another process, whose header has come: its numbers have been queued
    /// there. Called in the order in which a schedule's receives stand.
    ///
    /// # Errors
    /// [`crate::Error::PeerGone`], or whatever the carrier reports.
    fn recv(&mut self, peer: Rank, description: &[u8]) -> Result<W>;
}
