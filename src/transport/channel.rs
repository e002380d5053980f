//! Ranks of one process, linked by channels: one inbox a rank, wires handed over by pointer.
//!
//! Neither a lock nor an allocation on the way: an inbox is a ring of fixed size, and what came before it was asked for waits in
//! another. Only a rank that has nothing to do takes a lock, to sleep.

use std::collections::VecDeque;
use std::time::{Duration, Instant};
use std::{hint, thread};

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded, never};

use super::{Tag, Transport};
use crate::error::{Error, Result};
use crate::id::Rank;

/// For so long a rank with nothing to do looks for a packet before it sleeps, where every rank can have a core of its own. To be
/// woken takes a thread as long as a good part of this.
const AWAKE: Duration = Duration::from_micros(20);

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
    /// What came before it was asked for, in the order it came.
    early: VecDeque<(Rank, Packet<W>)>,
    gone: Option<Rank>,
    /// How long to wait awake.
    awake: Duration,
}

/// The linked ends of `ranks` ranks, in rank order, with `room` for so many wires and blocks in each inbox. With as much room as can
/// be on the way to a rank no send waits; one that finds no room waits for its receiver to take something, and takes in what
/// has come for its own rank meanwhile, so that no two ranks wait for each other. A rank waits awake for a moment where there is a core
/// for each of the `threads` of all ranks.
pub fn connect<W>(ranks: u32, threads: usize, room: usize) -> Vec<ChannelTransport<W>> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let awake = if threads <= cores { AWAKE } else { Duration::ZERO };
    let (peers, inboxes): (Vec<_>, Vec<_>) = (0..ranks).map(|_| bounded(room)).unzip();
    inboxes
        .into_iter()
        .zip(0..)
        .map(|(inbox, rank)| ChannelTransport {
            rank: Rank(rank),
            inbox,
            peers: peers.clone(),
            early: VecDeque::with_capacity(room),
            gone: None,
            awake,
        })
        .collect()
}

impl<W> ChannelTransport<W> {
    fn post(&mut self, peer: Rank, packet: Packet<W>) -> Result<()> {
        let mut packet = (self.rank, packet);
        loop {
            match self.peers[peer.index()].try_send(packet) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Disconnected(_)) => return Err(Error::PeerGone(peer)),
                Err(TrySendError::Full(back)) => packet = back,
            }
            while let Ok(came) = self.inbox.try_recv() {
                let came = self.living(came)?;
                self.early.push_back(came);
            }
            thread::yield_now();
        }
    }

    /// The first packet that is wanted; fails once any peer has stopped.
    fn take(&mut self, wanted: impl Fn(&(Rank, Packet<W>)) -> bool) -> Result<Packet<W>> {
        let early = self.early.iter().position(&wanted);
        if let Some((_, packet)) = early.and_then(|index| self.early.remove(index)) {
            return Ok(packet);
        }
        loop {
            if let Some(peer) = self.gone {
                return Err(Error::PeerGone(peer));
            }
            let came = self.next();
            let came = self.living(came)?;
            if wanted(&came) {
                return Ok(came.1);
            }
            self.early.push_back(came);
        }
    }

    /// The next packet in the inbox.
    fn next(&self) -> (Rank, Packet<W>) {
        if let Ok(came) = self.inbox.try_recv() {
            return came;
        }
        let since = Instant::now();
        while since.elapsed() < self.awake {
            hint::spin_loop();
            if let Ok(came) = self.inbox.try_recv() {
                return came;
            }
        }
        self.inbox
            .recv()
            .expect("the rank holds a sender to its own inbox")
    }

    /// A packet from a peer that goes on.
    fn living(&mut self, (from, packet): (Rank, Packet<W>)) -> Result<(Rank, Packet<W>)> {
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
        let packet = self
            .take(|(from, packet)| *from == peer && matches!(packet, Packet::Wire(got, _) if *got == tag))?;
        match packet {
            Packet::Wire(_, wire) => Ok(wire),
            Packet::Bytes(_) | Packet::Gone => unreachable!("a wire was wanted"),
        }
    }

    fn send_bytes(&mut self, peer: Rank, bytes: Vec<u8>) -> Result<()> {
        self.post(peer, Packet::Bytes(bytes))
    }

    fn recv_bytes(&mut self, peer: Rank) -> Result<Vec<u8>> {
        let packet = self.take(|(from, packet)| *from == peer && matches!(packet, Packet::Bytes(_)))?;
        match packet {
            Packet::Bytes(bytes) => Ok(bytes),
            Packet::Wire(..) | Packet::Gone => unreachable!("a block was wanted"),
        }
    }
}

impl<W> Drop for ChannelTransport<W> {
    fn drop(&mut self) {
        // Nobody has to wait for room in an inbox that nobody empties.
        self.inbox = never();
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
