//! Ranks of one process, linked by channels: one inbox a rank, wires handed over by pointer.

use std::collections::{HashMap, VecDeque};

use crossbeam_channel::{Receiver, Sender, unbounded};

use super::{Tag, Transport};
use crate::error::{Error, Result};
use crate::id::Rank;

enum Packet<W> {
    Wire(Tag, W),
    Bytes(Vec<u8>),
    Gone,
}

/// One rank's end of the channels between the ranks of a process.
pub struct ChannelTransport<W> {
    rank: Rank,
    inbox: Receiver<(Rank, Packet<W>)>,
    peers: Vec<Sender<(Rank, Packet<W>)>>,
    early_wires: HashMap<(Rank, Tag), W>,
    early_bytes: Vec<VecDeque<Vec<u8>>>,
    gone: Option<Rank>,
}

/// The linked ends of `ranks` ranks, in rank order.
pub fn connect<W>(ranks: u32) -> Vec<ChannelTransport<W>> {
    let (peers, inboxes): (Vec<_>, Vec<_>) = (0..ranks).map(|_| unbounded()).unzip();
    inboxes
        .into_iter()
        .zip(0..)
        .map(|(inbox, rank)| ChannelTransport {
            rank: Rank(rank),
            inbox,
            peers: peers.clone(),
            early_wires: HashMap::new(),
            early_bytes: peers.iter().map(|_| VecDeque::new()).collect(),
            gone: None,
        })
        .collect()
}

impl<W> ChannelTransport<W> {
    fn post(&self, peer: Rank, packet: Packet<W>) -> Result<()> {
        self.peers[peer.index()]
            .send((self.rank, packet))
            .map_err(|_| Error::PeerGone(peer))
    }

    /// Takes the next packet from the inbox; fails once any peer has stopped.
    fn next(&mut self) -> Result<(Rank, Packet<W>)> {
        if let Some(peer) = self.gone {
            return Err(Error::PeerGone(peer));
        }
        let (from, packet) = self
            .inbox
            .recv()
            .expect("the rank holds a sender to its own inbox");
        if matches!(packet, Packet::Gone) {
            self.gone = Some(from);
            return Err(Error::PeerGone(from));
        }
        Ok((from, packet))
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

    fn wait(&mut self, peer: Rank, tag: Tag) -> Result<W> {
        if let Some(wire) = self.early_wires.remove(&(peer, tag)) {
            return Ok(wire);
        }
        loop {
            match self.next()? {
                (from, Packet::Wire(got, wire)) if (from, got) == (peer, tag) => return Ok(wire),
                (from, packet) => self.keep(from, packet),
            }
        }
    }

    fn send_bytes(&mut self, peer: Rank, bytes: Vec<u8>) -> Result<()> {
        self.post(peer, Packet::Bytes(bytes))
    }

    fn recv_bytes(&mut self, peer: Rank) -> Result<Vec<u8>> {
        loop {
            if let Some(bytes) = self.early_bytes[peer.index()].pop_front() {
                return Ok(bytes);
            }
            let (from, packet) = self.next()?;
            self.keep(from, packet);
        }
    }
}

impl<W> ChannelTransport<W> {
    fn keep(&mut self, from: Rank, packet: Packet<W>) {
        match packet {
            Packet::Wire(tag, wire) => drop(self.early_wires.insert((from, tag), wire)),
            Packet::Bytes(bytes) => self.early_bytes[from.index()].push_back(bytes),
            Packet::Gone => unreachable!("`next` turns it into an error"),
        }
    }
}

impl<W> Drop for ChannelTransport<W> {
    fn drop(&mut self) {
        for peer in &self.peers {
            // A peer that has stopped itself needs no word.
            let _ = peer.send((self.rank, Packet::Gone));
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
