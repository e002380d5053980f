//! A rank's end of the links: channels to the ranks of its process, by which wires go by pointer, and sockets to those of others.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread;

use crossbeam_channel::TrySendError;

use super::inbox::{Door, Inbox, Packet, inbox};
use super::link::Far;
use super::{Payload, Tag, Transport};
use crate::error::{Error, Result};
use crate::id::Rank;

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
}

/// The linked ends of `ranks` ranks of one process, in rank order, with `room` for so many wires and blocks in each inbox. With as
/// much room as can be on the way to a rank no send waits; one that finds no room waits for its receiver to take something, and takes
/// in what has come for its own rank meanwhile, so that no two ranks wait for each other. A rank waits awake for a moment where there
/// is a core for each of the `threads` of all ranks.
pub fn connect<W>(ranks: u32, threads: usize, room: usize) -> Vec<ChannelTransport<W>> {
    let (doors, inboxes): (Vec<_>, Vec<_>) = (0..ranks).map(|_| inbox(threads, room)).unzip();
    let peers = || doors.iter().cloned().map(Peer::Near).collect();
    let ends = (0..).map(Rank).zip(inboxes);
    ends.map(|(rank, inbox)| ChannelTransport::new(rank, inbox, peers()))
        .collect()
}

impl<W> ChannelTransport<W> {
    pub(super) fn new(rank: Rank, inbox: Inbox<W>, peers: Vec<Peer<W>>) -> Self {
        Self {
            rank,
            inbox,
            peers,
            payload: None,
            posted: VecDeque::new(),
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
        let route = [self.rank, peer];
        match packet {
            Packet::Wire(tag, wire) => {
                let carried = match &mut self.payload {
                    Some(payload) => payload.send(peer, &wire)?,
                    None => false,
                };
                far.wire(route, tag, wire, carried)
            }
            Packet::Bytes(bytes) => far.bytes(route, bytes),
            Packet::Gone => far.gone(route),
            Packet::Header(..) => unreachable!("made by a link from a wire"),
        }
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
            Packet::Header(_, description) => match &mut self.payload {
                Some(payload) => payload.recv(peer, &description),
                None => Err(Error::Invalid(format!(
                    "rank {peer} sends what rank {} has no way to receive: start all processes with the same devices",
                    self.rank
                ))),
            },
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

    fn send(&mut self, peer: Rank, tag: Tag, wire: W) -> Result<()> {
        self.post(peer, Packet::Wire(tag, wire))
    }

    fn post_recv(&mut self, peer: Rank, tag: Tag) -> Result<()> {
        if self.payload.is_some() && self.is_far(peer) {
            self.posted.push_back((peer, tag));
        }
        Ok(())
    }

    fn wait(&mut self, peer: Rank, tag: Tag) -> Result<W> {
        // What is carried elsewhere is received in the order in which it was announced.
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
