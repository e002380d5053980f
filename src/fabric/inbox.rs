//! A rank's inbox: what all other ranks have sent to it.
//!
//! It needs no lock and no allocation. An inbox is a ring of fixed size. Packets that came early wait in
//! another ring. A rank takes a lock only to sleep, when it has nothing to do.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{hint, thread};

use crossbeam_channel::{Receiver, Sender, bounded, never, unbounded};

use super::Call;
use super::feed::Feed;
use super::packet::{Content, Packet};
use super::pause::Pause;
use crate::error::{Error, FabricError, Result};
use crate::id::WorldRank;

/// How long a rank with nothing to do looks for a packet before it sleeps, if every rank can have its own
/// core. To wake a sleeping thread takes about as long.
const AWAKE: Duration = Duration::from_micros(20);

/// The room of an inbox that takes any number of packets. It allocates for them.
pub const NO_LIMIT: usize = usize::MAX;

/// The sender for an inbox. All who deliver to it have one.
pub(super) type InboxSender<W> = Sender<Packet<W>>;

/// The packets for a rank.
pub(super) struct Inbox<W> {
    packets: Receiver<Packet<W>>,
    /// Packets that came before they were asked for, in order.
    early: VecDeque<Packet<W>>,
    /// Whether a packet has come early since [`Inbox::listen`] was called last.
    news: bool,
    /// The current call.
    call: Call,
    /// Why nothing can be taken any more, and the attempt in which it happened.
    failed: Option<(u32, Failure)>,
    /// How long to wait awake.
    awake: Duration,
    /// What receives from other processes, if a rank that waits may do it too.
    feed: Option<Arc<dyn Feed>>,
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

/// An inbox with room for `room` packets, or for any number ([`NO_LIMIT`]), and its sender. Its rank waits
/// awake for a moment if there is a core for each of the `threads`.
pub(super) fn inbox<W>(threads: usize, room: usize) -> (InboxSender<W>, Inbox<W>) {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let (sender, packets) = match room {
        NO_LIMIT => unbounded(),
        room => bounded(room),
    };
    let inbox = Inbox {
        packets,
        early: match room {
            NO_LIMIT => VecDeque::new(),
            room => VecDeque::with_capacity(room),
        },
        news: false,
        call: Call::default(),
        failed: None,
        awake: if threads <= cores { AWAKE } else { Duration::ZERO },
        feed: None,
    };
    (sender, inbox)
}

impl<W> Inbox<W> {
    /// The same inbox of a process's single rank. While that waits, it receives from the other processes.
    pub(super) fn fed_by(mut self, feed: Option<Arc<dyn Feed>>) -> Self {
        self.feed = feed;
        self
    }

    /// The current call.
    pub(super) fn call(&self) -> Call {
        self.call
    }

    /// Begins a call. Packets of earlier calls are dropped, and so is a failure of an earlier attempt.
    pub(super) fn begin(&mut self, call: Call) -> Result<()> {
        self.call = call;
        if self.failed.as_ref().is_some_and(|(attempt, _)| *attempt < call.attempt) {
            self.failed = None;
        }
        let mut left_over = None;
        self.early.retain(|packet| {
            let stale = packet.call() < call;
            if stale && matches!(packet.content, Content::Description(..)) {
                left_over = Some((packet.from, packet.call()));
            }
            !stale
        });
        match left_over {
            Some((from, of)) => Err(self.refuse(left(from, of))),
            None => Ok(()),
        }
    }

    /// Stores an error, which every later call returns, until a later attempt begins.
    pub(super) fn refuse(&mut self, error: FabricError) -> Error {
        self.fail(Failure::Fabric(Arc::new(error)))
    }

    /// This inbox's own rank has stopped: nothing can be taken until a later attempt.
    pub(super) fn stop(&mut self, own: WorldRank) {
        self.fail(Failure::Stopped(own));
    }

    /// Takes in all packets that have come, without waiting. Fails once any peer has stopped.
    pub(super) fn take_in(&mut self) -> Result<()> {
        self.look()?;
        while let Ok(packet) = self.packets.try_recv() {
            if self.accept(&packet)? {
                self.early.push_back(packet);
                self.news = true;
            }
        }
        Ok(())
    }

    /// Keeps something that will be asked for later.
    pub(super) fn keep(&mut self, from: WorldRank, content: Content<W>) {
        let call = self.call;
        self.early.push_back(Packet::new(from, call, content));
    }

    /// The first wanted packet of this call from a rank, if it has arrived. Fails once any peer has stopped.
    pub(super) fn poll(
        &mut self,
        from: WorldRank,
        wanted: impl Fn(&Content<W>) -> bool,
    ) -> Result<Option<Content<W>>> {
        let call = self.call;
        let is_it =
            |packet: &Packet<W>| packet.from == from && packet.call() == call && wanted(&packet.content);
        let early = self.early.iter().position(is_it);
        if let Some(packet) = early.and_then(|index| self.early.remove(index)) {
            return Ok(Some(packet.content));
        }
        self.look()?;
        while let Ok(packet) = self.packets.try_recv() {
            if !self.accept(&packet)? {
                continue;
            }
            if is_it(&packet) {
                return Ok(Some(packet.content));
            }
            self.early.push_back(packet);
            self.news = true;
        }
        Ok(None)
    }

    /// Waits for the first wanted packet of this call from a rank. Fails once any peer has stopped.
    pub(super) fn take(
        &mut self,
        from: WorldRank,
        wanted: impl Fn(&Content<W>) -> bool,
    ) -> Result<Content<W>> {
        loop {
            if let Some(content) = self.poll(from, &wanted)? {
                return Ok(content);
            }
            self.news = false;
            self.listen()?;
        }
    }

    /// Waits for a packet and keeps it, unless one was kept since this was called last. So a caller that
    /// polls for several packets in turn, and listens when none has come, misses none. Fails once any peer
    /// has stopped.
    pub(super) fn listen(&mut self) -> Result<()> {
        self.look()?;
        if std::mem::take(&mut self.news) {
            return Ok(());
        }
        let packet = self.next();
        if self.accept(&packet)? {
            self.early.push_back(packet);
        }
        Ok(())
    }

    /// Closes the inbox. Nobody empties it any more, so nobody must wait for room in it.
    pub(super) fn close(&mut self) {
        self.packets = never();
    }

    /// Waits for the next packet.
    fn next(&self) -> Packet<W> {
        if let Some(feed) = &self.feed {
            return self.fetch(feed.as_ref());
        }
        let since = Instant::now();
        while since.elapsed() < self.awake {
            hint::spin_loop();
            if let Ok(packet) = self.packets.try_recv() {
                return packet;
            }
        }
        self.packets.recv().expect("the rank holds a way into its own inbox")
    }

    /// Waits for the next packet, and receives from the other processes.
    fn fetch(&self, feed: &dyn Feed) -> Packet<W> {
        let pause = match self.awake {
            Duration::ZERO => Pause::yielding(),
            _ => Pause::begin(),
        };
        loop {
            if let Ok(packet) = self.packets.try_recv() {
                return packet;
            }
            if feed.feed(&|| self.packets.is_empty()) {
                continue;
            }
            let mut came = None;
            pause.rest(|time| came = self.packets.recv_timeout(time).ok());
            if let Some(packet) = came {
                return packet;
            }
        }
    }

    /// Whether a packet may be asked for, now or in a later call. Packets of earlier calls are dropped.
    fn accept(&mut self, packet: &Packet<W>) -> Result<bool> {
        let is_old_attempt = packet.call().attempt < self.call.attempt;
        match &packet.content {
            // A rank may have stopped between two calls. It has then stopped in the next one too.
            Content::Stopped if !is_old_attempt => {
                Err(self.fail_in(packet.call().attempt, Failure::Stopped(packet.from)))
            }
            Content::Failed(error) if !is_old_attempt => {
                Err(self.fail_in(packet.call().attempt, Failure::Fabric(Arc::clone(error))))
            }
            Content::Description(..) if packet.call() < self.call => {
                Err(self.refuse(left(packet.from, packet.call())))
            }
            _ => Ok(packet.call() >= self.call),
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
        // This rank may stop in an attempt after a faster one has stopped in a later attempt.
        if self.failed.as_ref().is_none_or(|(known, _)| *known <= attempt) {
            self.failed = Some((attempt, failure.clone()));
        }
        failure.into()
    }
}

fn left(from: WorldRank, of: Call) -> FabricError {
    FabricError::failed(format!(
        "rank {from} sent a wire in call {} that was never received: its numbers come before those of this \
         call",
        of.number
    ))
}
