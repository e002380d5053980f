//! A rank's end of the links: channels to the ranks of its process, by which wires go by pointer, and sockets to those of others.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::TrySendError;

use super::inbox::{Door, Inbox, Packet, inbox};
use super::link::Far;
use super::{Alarm, GoingOn, Payload, Tag, Transport};
use crate::error::{Error, Result};
use crate::id::Rank;

/// A carrier may notice that a peer has gone this long before the sockets tell.
const GRACE: Duration = Duration::from_secs(1);

/// The way to another rank.
pub(super) enum Peer<W> {
    /// It is in this process.
    Near(Door<W>),
    /// It is in another one.
    Far(Arc<dyn Far<W>>),
}

/// One rank's end of the links to all others.
pub struct ChannelTransport<W> {
    rank: Rank,
    inbox: Inbox<W>,
    peers: Vec<Peer<W>>,
    /// What carries the numbers of wires that do not go over sockets.
    payload: Option<Box<dyn Payload<W>>>,
    /// What it will bring, in the order in which it was announced.
    posted: VecDeque<(Rank, Tag)>,
    /// Rings when a rank of another process has stopped.
    alarm: Alarm,
}

/// The linked ends of `ranks` ranks of one process, in rank order, with `room` for so many wires and blocks in each inbox. With as
/// much room as can be on the way to a rank no send waits; one that finds no room waits for its receiver to take something, and takes
/// in what has come for its own rank meanwhile, so that no two ranks wait for each other. A rank waits awake for a moment where there
/// is a core for each of the `threads` of all ranks.
pub fn connect<W>(ranks: u32, threads: usize, room: usize) -> Vec<ChannelTransport<W>> {
    let (doors, inboxes): (Vec<_>, Vec<_>) = (0..ranks).map(|_| inbox(threads, room)).unzip();
    let peers = || doors.iter().cloned().map(Peer::Near).collect();
    let ends = (0..).map(Rank).zip(inboxes);
    ends.map(|(rank, inbox)| ChannelTransport::new(rank, inbox, peers(), &Alarm::default()))
        .collect()
}

impl<W> ChannelTransport<W> {
    pub(super) fn new(rank: Rank, inbox: Inbox<W>, peers: Vec<Peer<W>>, alarm: &Alarm) -> Self {
        Self {
            rank,
            inbox,
            peers,
            payload: None,
            posted: VecDeque::new(),
            alarm: alarm.clone(),
        }
    }

    /// The same end, with the numbers of wires to and from other processes carried by `payload` where it takes them.
    #[must_use]
    pub fn carried_by(mut self, payload: Box<dyn Payload<W>>) -> Self {
        self.payload = Some(payload);
        self
    }
}

impl<W: Send + 'static> ChannelTransport<W> {
    fn post(&mut self, peer: Rank, packet: Packet<W>) -> Result<()> {
        let Peer::Near(door) = &self.peers[peer.index()] else {
            return self.post_far(peer, packet);
        };
        let mut packet = (self.rank, packet);
        loop {
            match door.try_send(packet) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Disconnected(_)) => return Err(Error::PeerGone(peer)),
                Err(TrySendError::Full(back)) => packet = back,
            }
            self.inbox.take_in()?;
            thread::yield_now();
        }
    }

    fn post_far(&mut self, peer: Rank, packet: Packet<W>) -> Result<()> {
        let Peer::Far(far) = &self.peers[peer.index()] else {
            unreachable!("asked before");
        };
        let (far, route) = (Arc::clone(far), [self.rank, peer]);
        match packet {
            Packet::Wire(tag, wire) => {
                let carried = self.carry(|payload, going_on| payload.send(peer, &wire, going_on))?;
                far.wire(route, tag, wire, carried.unwrap_or(false))
            }
            Packet::Bytes(bytes) => far.bytes(route, bytes),
            Packet::Gone => far.gone(route),
            Packet::Header(..) => unreachable!("made by a link from a wire"),
        }
    }

    /// Lets the carrier do something, when there is one.
    fn carry<T>(
        &mut self,
        act: impl FnOnce(&mut dyn Payload<W>, GoingOn<'_>) -> Result<T>,
    ) -> Result<Option<T>> {
        let Some(payload) = &mut self.payload else {
            return Ok(None);
        };
        let inbox = &mut self.inbox;
        match act(payload.as_mut(), &mut || inbox.take_in()) {
            Ok(done) => Ok(Some(done)),
            Err(error) => Err(self.cause(error)),
        }
    }

    /// What a carrier reports, or that a peer has stopped, which it follows from.
    fn cause(&mut self, error: Error) -> Error {
        let since = Instant::now();
        loop {
            if let Err(gone) = self.inbox.take_in() {
                return gone;
            }
            if since.elapsed() > GRACE {
                return error;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Receives what the carrier will bring, as far as it was announced.
    fn take_posted(&mut self) -> Result<()> {
        while let Some((from, tag)) = self.posted.pop_front() {
            let wire = self.fetch(from, tag)?;
            self.inbox.keep(from, Packet::Wire(tag, wire));
        }
        Ok(())
    }

    fn is_far(&self, peer: Rank) -> bool {
        matches!(self.peers[peer.index()], Peer::Far(_))
    }

    /// The wire of this tag.
    fn fetch(&mut self, peer: Rank, tag: Tag) -> Result<W> {
        let packet = self.inbox.take(|(from, packet)| {
            *from == peer && matches!(packet, Packet::Wire(got, _) | Packet::Header(got, _) if *got == tag)
        })?;
        match packet {
            Packet::Wire(_, wire) => Ok(wire),
            Packet::Header(_, description) => self
                .carry(|payload, going_on| payload.recv(peer, &description, going_on))?
                .ok_or_else(|| {
                    Error::Invalid(format!(
                        "rank {peer} sends what rank {} has no way to receive: start all processes with the same devices",
                        self.rank
                    ))
                }),
            Packet::Bytes(_) | Packet::Gone => unreachable!("a wire was wanted"),
        }
    }
}

impl<W: Send + 'static> Transport<W> for ChannelTransport<W> {
    fn rank(&self) -> Rank {
        self.rank
    }

    fn ranks(&self) -> u32 {
        self.peers.len() as u32
    }

    fn is_direct(&self, peer: Rank) -> bool {
        !self.is_far(peer) || self.payload.as_ref().is_some_and(|payload| payload.reaches(peer))
    }

    fn start(&mut self, partners: &[Rank]) -> Result<()> {
        let alarm = self.alarm.clone();
        let far: Vec<Rank> = partners
            .iter()
            .copied()
            .filter(|peer| self.is_far(*peer))
            .collect();
        self.carry(|payload, going_on| payload.start(&far, &alarm, going_on))
            .map(|_| ())
    }

    fn check(&mut self) -> Result<()> {
        self.inbox.take_in()?;
        self.carry(|payload, _| payload.check()).map(|_| ())
    }

    fn send(&mut self, peer: Rank, tag: Tag, wire: W) -> Result<()> {
        if self.payload.is_some() && self.is_far(peer) {
            // What is carried elsewhere is carried in the order of the schedule, sends and receives alike.
            self.take_posted()?;
        }
        self.post(peer, Packet::Wire(tag, wire))
    }

    fn post_recv(&mut self, peer: Rank, tag: Tag) -> Result<()> {
        if self.payload.is_some() && self.is_far(peer) {
            self.posted.push_back((peer, tag));
        }
        Ok(())
    }

    fn wait(&mut self, peer: Rank, tag: Tag) -> Result<W> {
        // As above: what was announced before comes before.
        while self.posted.contains(&(peer, tag)) {
            let Some((from, first)) = self.posted.pop_front() else {
                break;
            };
            let wire = self.fetch(from, first)?;
            self.inbox.keep(from, Packet::Wire(first, wire));
        }
        self.fetch(peer, tag)
    }

    fn send_bytes(&mut self, peer: Rank, bytes: Vec<u8>) -> Result<()> {
        self.post(peer, Packet::Bytes(bytes))
    }

    fn recv_bytes(&mut self, peer: Rank) -> Result<Vec<u8>> {
        let packet = self
            .inbox
            .take(|(from, packet)| *from == peer && matches!(packet, Packet::Bytes(_)))?;
        match packet {
            Packet::Bytes(bytes) => Ok(bytes),
            Packet::Wire(..) | Packet::Header(..) | Packet::Gone => unreachable!("a block was wanted"),
        }
    }
}

impl<W> Drop for ChannelTransport<W> {
    fn drop(&mut self) {
        self.inbox.close();
        for (peer, to) in self.peers.iter().zip((0..).map(Rank)) {
            // A peer that has stopped itself needs no word.
            match peer {
                Peer::Near(door) => drop(door.send((self.rank, Packet::Gone))),
                Peer::Far(far) => drop(far.gone([self.rank, to])),
            }
        }
    }
}

impl<W> std::fmt::Debug for ChannelTransport<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChannelTransport")
            .field("rank", &self.rank)
            .finish_non_exhaustive()
    }
}
