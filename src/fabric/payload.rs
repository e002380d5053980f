//! What carries the numbers of wires between processes when the sockets do not.

use super::Alarm;
use crate::error::Result;
use crate::id::Rank;

/// To be asked again and again by a carrier that waits: fails once a peer has stopped, and then it must not wait any longer.
pub type GoingOn<'a> = &'a mut dyn FnMut() -> Result<()>;

/// A carrier of numbers: between GPUs, say. It belongs to one rank, whose thread alone calls it.
///
/// The header of each wire (tag, description) goes over the socket whoever carries the numbers. `README.md` in this folder says what
/// a carrier can rely on and what it must promise.
pub trait Payload<W>: Send {
    /// Makes its connections. Called once on each rank that has a carrier, by all at about the same time, before the first wire. What the
    /// `alarm` is told ends whatever holds the rank up. `partners` are ranks that this one sends to and receives from besides those that the
    /// schedule links it with.
    ///
    /// # Errors
    /// Whatever the carrier reports, as that a peer does not come in time.
    fn start(&mut self, _partners: &[Rank], _alarm: &Alarm, _going_on: GoingOn<'_>) -> Result<()> {
        Ok(())
    }

    /// Whether it takes what is on its device to a partner, and brings what is on the partner's.
    fn reaches(&self, _partner: Rank) -> bool {
        false
    }

    /// Queues a wire's numbers for a rank of another process, and gives whether it did: false leaves them to the socket. Called
    /// right before the header is sent. Sends and receives of a rank are called in the order of the schedule.
    ///
    /// # Errors
    /// Whatever the carrier reports; the rank stops.
    fn send(&mut self, peer: Rank, wire: &W, going_on: GoingOn<'_>) -> Result<bool>;

    /// Receives the wire of this description from a rank of another process, whose header has come: its numbers have been queued
    /// there.
    ///
    /// # Errors
    /// [`crate::Error::PeerGone`], or whatever the carrier reports.
    fn recv(&mut self, peer: Rank, description: &[u8], going_on: GoingOn<'_>) -> Result<W>;

    /// Whether what is queued goes well.
    ///
    /// # Errors
    /// Whatever the carrier has noticed.
    fn check(&mut self) -> Result<()> {
        Ok(())
    }
}
