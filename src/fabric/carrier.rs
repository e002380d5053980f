//! What carries the numbers of wires between processes where the sockets do not have to.

use super::Alarm;
use crate::error::Result;
use crate::id::WorldRank;

/// A carrier that waits calls this again and again. It fails once a peer has stopped: then the carrier waits
/// no longer and gives this error.
pub type KeepGoing<'a> = &'a mut dyn FnMut() -> Result<()>;

/// Carries the numbers of wires, such as those between GPUs. It belongs to one rank, whose thread alone calls
/// it.
///
/// The description of each wire goes over the socket whoever carries the numbers. `README.md` in this folder
/// says what a carrier can rely on and what it must promise.
pub trait Carrier<W>: Send {
    /// Makes its connections. Called once on each rank that has a carrier, by all at about the same time,
    /// before the first wire. The carrier gives the `alarm` what ends a call that holds the rank up.
    /// `partners` are ranks that this one sends to and receives from besides those that the schedule connects
    /// it with.
    ///
    /// # Errors
    /// Whatever the carrier reports, as that a peer does not come in time.
    fn start(&mut self, _partners: &[WorldRank], _alarm: &Alarm, _keep_going: KeepGoing<'_>) -> Result<()> {
        Ok(())
    }

    /// Whether it takes what is on its device to a partner, and brings what is on the partner's.
    fn reaches(&self, _partner: WorldRank) -> bool {
        false
    }

    /// Queues a wire's numbers for a rank of another process, and gives whether it did: false leaves them to
    /// the socket. Called right before the description is sent. Sends and receives of a rank are called in
    /// the order of the schedule.
    ///
    /// # Errors
    /// Whatever the carrier reports; the rank stops.
    fn send(&mut self, peer: WorldRank, wire: &W, keep_going: KeepGoing<'_>) -> Result<bool>;

    /// Receives the wire of this description from a rank of another process. The description has come, so the
    /// numbers have been queued there.
    ///
    /// # Errors
    /// [`crate::Error::PeerGone`], or whatever the carrier reports.
    fn receive(&mut self, peer: WorldRank, description: &[u8], keep_going: KeepGoing<'_>) -> Result<W>;

    /// Whether what is queued goes well.
    ///
    /// # Errors
    /// Whatever the carrier has noticed.
    fn check(&mut self) -> Result<()> {
        Ok(())
    }
}
