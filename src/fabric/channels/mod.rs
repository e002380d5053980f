//! Ranks of one process: wires are handed over as they are, by channels.

use crossbeam_channel::TrySendError;

use super::inbox::{InboxSender, inbox};
use super::packet::{Packet, Route};
use super::{Alarm, End};
use crate::error::{Error, Result};
use crate::id::WorldRank;

/// The way to a rank of the same process.
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

/// The connected ends of `ranks` ranks of one process, in rank order, with `room` for so many wires and
/// blocks in each inbox.
///
/// With as much room as can be on the way to a rank no send waits. One that finds no room waits until its
/// receiver takes something, and takes in what has come for its own rank meanwhile, so that no two ranks wait
/// for each other. A rank waits awake for a moment where there is a core for each of the `threads` of all
/// ranks.
pub fn connect<W: Send + 'static>(ranks: u32, threads: usize, room: usize) -> Vec<End<W>> {
    let (senders, inboxes): (Vec<_>, Vec<_>) = (0..ranks).map(|_| inbox(threads, room)).unzip();
    let route = |(to, inbox): (u32, &InboxSender<W>)| {
        let (to, inbox) = (WorldRank(to), inbox.clone());
        Box::new(Channel { to, inbox }) as Box<dyn Route<W>>
    };
    let routes = || (0..).zip(&senders).map(route).collect();
    let ends = (0..).map(WorldRank).zip(inboxes);
    ends.map(|(rank, inbox)| End::new(rank, inbox, routes(), &Alarm::default()))
        .collect()
}
