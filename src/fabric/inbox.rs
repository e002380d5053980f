//! A rank's inbox: what has come for it from all other ranks.
//!
//! Neither a lock nor an allocation: an inbox is a ring of fixed size, and what came before it was asked for waits in another.
//! Only a rank that has nothing to do takes a lock, to sleep.

use std::collections::VecDeque;
use std::time::{Duration, Instant};
use std::{hint, thread};

use crossbeam_channel::{Receiver, Sender, bounded, never};

use super::Tag;
use crate::error::{Error, Result};
use crate::id::Rank;

/// For so long a rank with nothing to do looks for a packet before it sleeps, where every rank can have a core of its own. To be
/// woken takes a thread as long as a good part of this.
const AWAKE: Duration = Duration::from_micros(20);

/// What comes from another rank.
pub(super) enum Packet<W> {
    /// A wire.
    Wire(Tag, W),
    /// The description of a wire whose numbers a [`super::Payload`] brings.
    Header(Tag, Vec<u8>),
    /// A block.
    Bytes(Vec<u8>),
    /// The rank has stopped.
    Gone,
}

/// How others reach a rank.
pub(super) type Door<W> = Sender<(Rank, Packet<W>)>;

/// What has come for a rank.
pub(super) struct Inbox<W> {
    packets: Receiver<(Rank, Packet<W>)>,
    /// What came before it was asked for, in the order it came.
    early: VecDeque<(Rank, Packet<W>)>,
    gone: Option<Rank>,
    /// How long to wait awake.
    awake: Duration,
}

/// An inbox with room for so many packets, and the way into it. Its rank waits awake for a moment where there is a core for each of
/// so many `threads`.
pub(super) fn inbox<W>(threads: usize, room: usize) -> (Door<W>, Inbox<W>) {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let (door, packets) = bounded(room);
    let inbox = Inbox {
        packets,
        early: VecDeque::with_capacity(room),
        gone: None,
        awake: if threads <= cores { AWAKE } else { Duration::ZERO },
    };
    (door, inbox)
}

impl<W> Inbox<W> {
    /// Takes in what has come, without waiting; fails once any peer has stopped.
    pub(super) fn take_in(&mut self) -> Result<()> {
        if let Some(peer) = self.gone {
            return Err(Error::PeerGone(peer));
        }
        while let Ok(came) = self.packets.try_recv() {
            let came = self.living(came)?;
            self.early.push_back(came);
        }
        Ok(())
    }

    /// Puts back what will be asked for later.
    pub(super) fn keep(&mut self, from: Rank, packet: Packet<W>) {
        self.early.push_back((from, packet));
    }

    /// The first packet that is wanted; fails once any peer has stopped.
    pub(super) fn take(&mut self, wanted: impl Fn(&(Rank, Packet<W>)) -> bool) -> Result<Packet<W>> {
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

    /// Nobody has to wait for room in an inbox that nobody empties.
    pub(super) fn close(&mut self) {
        self.packets = never();
    }

    /// The next packet.
    fn next(&self) -> (Rank, Packet<W>) {
        if let Ok(came) = self.packets.try_recv() {
            return came;
        }
        let since = Instant::now();
        while since.elapsed() < self.awake {
            hint::spin_loop();
            if let Ok(came) = self.packets.try_recv() {
                return came;
            }
        }
        self.packets
            .recv()
            .expect("the rank holds a way into its own inbox")
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
