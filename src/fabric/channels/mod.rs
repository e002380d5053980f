//! Channels between the ranks of one process: wires are handed over without a copy.

use crossbeam_channel::TrySendError;

use super::inbox::{InboxSender, inbox};
use super::packet::{Packet, Route};
use super::{Alarm, End};
use crate::error::{Error, Result};
use crate::id::WorldRank;

/// The route to a rank of the same process.
pub(super) struct Channel<W> {
    pub(super) to: WorldRank,
    pub(super) inbox: InboxSender<W>,
}

impl<W: Send> Route<W> for Channel<W> {
    fn is_near(&self) -> bool {
        true
    }

    fn send(&self, packet: Packet<W>) -> Result<Option<Packet<W>>> {
        match self.inbox.try_send(packet) {
            Ok(()) => Ok(None),
            Err(TrySendError::Full(back)) => Ok(Some(back)),
            Err(TrySendError::Disconnected(_)) => Err(Error::PeerGone(self.to)),
        }
    }
}

/// The connected ends of `ranks` ranks of one process, in rank order. Each inbox has `room` wires and blocks.
///
/// With [`NO_LIMIT`](super::NO_LIMIT) there is always room.
///
/// If there is room for all that can be on the way to a rank, no send waits. A send that finds no room waits
/// until its receiver takes something. Meanwhile it empties its own rank's inbox, so that two ranks cannot
/// wait for each other. If there is a core for each of the `threads` of all ranks, a waiting rank stays awake
/// for a moment.
pub fn connect<W: Send + 'static>(ranks: u32, threads: usize, room: usize) -> Vec<End<W>> {
    let (senders, inboxes): (Vec<_>, Vec<_>) = (0..ranks).map(|_| inbox(threads, room)).unzip();
    let route = |(to, inbox): (u32, &InboxSender<W>)| {
        let (to, inbox) = (WorldRank(to), inbox.clone());
        Box::new(Channel { to, inbox }) as Box<dyn Route<W>>
    };
    let routes = || (0..).zip(&senders).map(route).collect();
    let ends = (0..).map(WorldRank).zip(inboxes);
    ends.map(|(rank, inbox)| End::new(rank, inbox, routes(), &Alarm::default())).collect()
}
