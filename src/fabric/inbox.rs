//! A rank's inbox: what has come for it from all other ranks.
//!
//! It takes neither a lock nor an allocation: an inbox is a ring of fixed size, and what came before it was
//! asked for waits in another. Only a rank that has nothing to do takes a lock, to sleep.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{hint, thread};

use crossbeam_channel::{Receiver, Sender, bounded, never};

use super::Call;
use super::packet::{Content, Packet};
use crate::error::{Error, FabricError, Result};
use crate::id::WorldRank;

/// How long a rank with nothing to do looks for a packet before it sleeps, where every rank can have a core
/// of its own. To wake a sleeping thread takes about as long.
const AWAKE: Duration = Duration::from_micros(20);

/// The way into an inbox, for all who deliver to it.
pub(super) type InboxSender<W> = Sender<Packet<W>>;

/// What has come for a rank.
pub(super) struct Inbox<W> {
    packets: Receiver<Packet<W>>,
    /// What came before it was asked for, in the order it came.
    early: VecDeque<Packet<W>>,
    /// The call that has begun.
    call: Call,
    /// Why nothing can be taken any more, and the attempt it belongs to.
    failed: Option<(u32, Failure)>,
    /// How long to wait awake.
    awake: Duration,
}

/// Why nothing can be taken any more.
#[derive(Clone)]
enum Failure {
    Stopped(WorldRank),
    Fabric(Arc<FabricError>),
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Stopped(rank) => Self::PeerGone(rank),
            Failure::Fabric(error) => FabricError::clone(&error).into(),
        }
    }
}

/// An inbox with room for so many packets, and the way into it. Its rank waits awake for a moment where there
/// is a core for each of so many `threads`.
pub(super) fn inbox<W>(threads: usize, room: usize) -> (InboxSender<W>, Inbox<W>) {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let (sender, packets) = bounded(room);
    let inbox = Inbox {
        packets,
        early: VecDeque::with_capacity(room),
        call: Call::default(),
        failed: None,
        awake: if threads <= cores { AWAKE } else { Duration::ZERO },
    };
    (sender, inbox)
}

impl<W> Inbox<W> {
    /// The call that has begun.
    pub(super) fn call(&self) -> Call {
        self.call
    }

    /// Begins a call: what belongs to an earlier one is dropped, and a failure of an earlier attempt is
    /// forgotten.
    pub(super) fn begin(&mut self, call: Call) -> Result<()> {
        let restarted = call.attempt > self.call.attempt;
        self.call = call;
        if self
            .failed
            .as_ref()
            .is_some_and(|(attempt, _)| *attempt < call.attempt)
        {
            self.failed = None;
        }
        let mut left_over = None;
        self.early.retain(|packet| {
            let stale = packet.call < call;
            if stale && matches!(packet.content, Content::Description(..)) {
                left_over = Some((packet.from, packet.call));
            }
            !stale
        });
        match left_over {
            // The carrier starts anew with the attempt.
            Some((from, of)) if !restarted => Err(self.fail(Failure::Fabric(Arc::new(left(from, of))))),
            _ => Ok(()),
        }
    }

    /// Nothing can be taken any more until a later attempt: this inbox's own rank has stopped.
    pub(super) fn stop(&mut self, own: WorldRank) {
        self.fail(Failure::Stopped(own));
    }

    /// Takes in what has come, without waiting; fails once any peer has stopped.
    pub(super) fn take_in(&mut self) -> Result<()> {
        self.look()?;
        while let Ok(packet) = self.packets.try_recv() {
            if self.accept(&packet)? {
                self.early.push_back(packet);
            }
        }
        Ok(())
    }

    /// Puts back what will be asked for later.
    pub(super) fn keep(&mut self, from: WorldRank, content: Content<W>) {
        let call = self.call;
        self.early.push_back(Packet { from, call, content });
    }

    /// The first packet of the call from this rank that is wanted; fails once any peer has stopped.
    pub(super) fn take(
        &mut self,
        from: WorldRank,
        wanted: impl Fn(&Content<W>) -> bool,
    ) -> Result<Content<W>> {
        let call = self.call;
        let is_it =
            |packet: &Packet<W>| packet.from == from && packet.call == call && wanted(&packet.content);
        let early = self.early.iter().position(is_it);
        if let Some(packet) = early.and_then(|index| self.early.remove(index)) {
            return Ok(packet.content);
        }
        loop {
            self.look()?;
            let packet = self.next();
            if !self.accept(&packet)? {
                continue;
            }
            if is_it(&packet) {
                return Ok(packet.content);
            }
            self.early.push_back(packet);
        }
    }

    /// Nobody has to wait for room in an inbox that nobody empties.
    pub(super) fn close(&mut self) {
        self.packets = never();
    }

    /// The next packet.
    fn next(&self) -> Packet<W> {
        if let Ok(packet) = self.packets.try_recv() {
            return packet;
        }
        let since = Instant::now();
        while since.elapsed() < self.awake {
            hint::spin_loop();
            if let Ok(packet) = self.packets.try_recv() {
                return packet;
            }
        }
        self.packets
            .recv()
            .expect("the rank holds a way into its own inbox")
    }

    /// Whether a packet can be asked for, now or in a later call. What belongs to an earlier call is dropped.
    fn accept(&mut self, packet: &Packet<W>) -> Result<bool> {
        let is_old_attempt = packet.call.attempt < self.call.attempt;
        match &packet.content {
            // A rank may have stopped between two calls: that it has is true in the next one too.
            Content::Stopped if !is_old_attempt => {
                Err(self.fail_in(packet.call.attempt, Failure::Stopped(packet.from)))
            }
            Content::Failed(error) if !is_old_attempt => {
                Err(self.fail_in(packet.call.attempt, Failure::Fabric(Arc::clone(error))))
            }
            Content::Description(..) if packet.call < self.call && !is_old_attempt => {
                Err(self.fail(Failure::Fabric(Arc::new(left(packet.from, packet.call)))))
            }
            _ => Ok(packet.call >= self.call),
        }
    }

    fn look(&self) -> Result<()> {
        match &self.failed {
            Some((_, failure)) => Err(failure.clone().into()),
            None => Ok(()),
        }
    }

    fn fail(&mut self, failure: Failure) -> Error {
        self.fail_in(self.call.attempt, failure)
    }

    fn fail_in(&mut self, attempt: u32, failure: Failure) -> Error {
        self.failed = Some((attempt, failure.clone()));
        failure.into()
    }
}

fn left(from: WorldRank, of: Call) -> FabricError {
    FabricError::LeftOver {
        from,
        call: of.number,
    }
}
