//! Ends whose packets go by links that somebody else makes, instead of channels. So a test can let them come
//! late, or in another order, and can say which rank goes on.

use std::sync::Arc;

use crossbeam_channel::TrySendError;

use super::feed::Feed;
use super::inbox::{InboxSender, inbox};
use super::packet::{Content, Packet, Route};
use super::{Alarm, Call, End, Tag};
use crate::error::Result;
use crate::id::WorldRank;

/// Carries what the ranks of one process send each other.
pub trait Links<W>: Send + Sync + 'static {
    /// A rank sends a parcel. [`Parcel::deliver`] hands it over, at any time and on any thread. Of those
    /// with one call and one [`Load`] from one rank to another, each must arrive once, in the order in which
    /// they were sent.
    fn carry(&self, parcel: Parcel<W>);

    /// A rank has taken all that has arrived, and waits for more. Returns when there may be something. It may
    /// return too early.
    fn await_parcel(&self, rank: WorldRank);
}

/// Something on its way from one rank to another.
pub struct Parcel<W> {
    to: WorldRank,
    packet: Packet<W>,
    inbox: InboxSender<W>,
}

/// What is in a parcel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Load {
    /// A wire.
    Wire(Tag),
    /// A block of host memory.
    Block(Tag),
    /// The news that its sender has stopped.
    Stopped,
}

impl<W> Parcel<W> {
    /// The rank that has sent it.
    pub fn from(&self) -> WorldRank {
        self.packet.from
    }

    /// The rank that it is for.
    pub fn to(&self) -> WorldRank {
        self.to
    }

    /// The call that its sender was in.
    pub fn call(&self) -> Call {
        self.packet.call()
    }

    /// What is in it.
    pub fn load(&self) -> Load {
        match &self.packet.content {
            Content::Wire(tag, _) => Load::Wire(*tag),
            Content::Block(tag, _) => Load::Block(*tag),
            Content::Stopped => Load::Stopped,
            Content::Carried(..) | Content::Description(..) | Content::Failed(_) => {
                unreachable!("these ends have no carrier, and links report no failures")
            }
        }
    }

    /// Hands it over. If the receiver's inbox has no room, it comes back.
    pub fn deliver(self) -> Option<Self> {
        let Self { to, packet, inbox } = self;
        match inbox.try_send(packet) {
            Err(TrySendError::Full(packet)) => Some(Self { to, packet, inbox }),
            // Nobody reads what comes for a rank that has stopped.
            Ok(()) | Err(TrySendError::Disconnected(_)) => None,
        }
    }

    /// The news that its sender has stopped, in its place: links say this when they have lost the sender.
    #[must_use]
    pub fn into_stopped(self) -> Self {
        let packet = Packet::new(self.packet.from, self.packet.call(), Content::Stopped);
        Self { packet, ..self }
    }
}

impl<W> std::fmt::Debug for Parcel<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parcel")
            .field("from", &self.from())
            .field("to", &self.to)
            .field("call", &self.call())
            .field("load", &self.load())
            .finish()
    }
}

/// The ends of `ranks` ranks of one process, in rank order, which these links connect. Each inbox has `room`
/// wires and blocks.
pub fn connect_by<W: Send + 'static>(ranks: u32, room: usize, links: &Arc<dyn Links<W>>) -> Vec<End<W>> {
    let (senders, inboxes): (Vec<_>, Vec<_>) = (0..ranks).map(|_| inbox(usize::MAX, room)).unzip();
    let route = |(to, inbox): (u32, &InboxSender<W>)| {
        let (to, inbox, links) = (WorldRank(to), inbox.clone(), Arc::clone(links));
        Box::new(Link { to, inbox, links }) as Box<dyn Route<W>>
    };
    let routes = || (0..).zip(&senders).map(route).collect();
    let ends = (0..).map(WorldRank).zip(inboxes);
    ends.map(|(rank, inbox)| {
        let links = Arc::clone(links);
        let inbox = inbox.fed_by(Some(Arc::new(Waiting { rank, links })));
        End::new(rank, inbox, routes(), &Alarm::default())
    })
    .collect()
}

/// The route to a rank.
struct Link<W: 'static> {
    to: WorldRank,
    inbox: InboxSender<W>,
    links: Arc<dyn Links<W>>,
}

impl<W: Send + 'static> Route<W> for Link<W> {
    fn is_near(&self) -> bool {
        true
    }

    fn send(&self, packet: Packet<W>) -> Result<Option<Packet<W>>> {
        self.links.carry(Parcel { to: self.to, packet, inbox: self.inbox.clone() });
        Ok(None)
    }
}

/// Lets the links know of a rank that waits.
struct Waiting<W: 'static> {
    rank: WorldRank,
    links: Arc<dyn Links<W>>,
}

impl<W: 'static> Feed for Waiting<W> {
    fn feed(&self, _: &dyn Fn() -> bool) -> bool {
        self.links.await_parcel(self.rank);
        true
    }
}
