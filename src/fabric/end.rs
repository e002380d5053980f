//! A rank's end. It has an inbox for all fabrics, a route to each peer, and perhaps a carrier of numbers.

use std::collections::VecDeque;
use std::thread;
use std::time::{Duration, Instant};

use super::inbox::Inbox;
use super::packet::{Content, Packet, Route};
use super::{Alarm, Call, Carrier, KeepGoing, Tag, Taken, Transport};
use crate::error::{Error, FabricError, Result};
use crate::id::WorldRank;

/// How long to wait for the sockets' report of a peer's end. A carrier may notice the end much earlier.
const GRACE: Duration = Duration::from_secs(1);

/// One rank's end of the connections to all others.
pub struct End<W> {
    rank: WorldRank,
    inbox: Inbox<W>,
    /// By rank.
    routes: Vec<Box<dyn Route<W>>>,
    /// Moves the numbers of wires to and from other processes, where it can.
    carrier: Option<Box<dyn Carrier<W>>>,
    /// The wires that the carrier will receive, in the order in which they were announced.
    posted: VecDeque<(WorldRank, Tag)>,
    /// Goes off when a rank of another process has stopped.
    alarm: Alarm,
}

impl<W> End<W> {
    pub(super) fn new(
        rank: WorldRank,
        inbox: Inbox<W>,
        routes: Vec<Box<dyn Route<W>>>,
        alarm: &Alarm,
    ) -> Self {
        Self { rank, inbox, routes, carrier: None, posted: VecDeque::new(), alarm: alarm.clone() }
    }

    /// The same end with a carrier. It moves the numbers of wires to and from other processes, if it takes
    /// them.
    #[must_use]
    pub fn carried_by(mut self, carrier: Box<dyn Carrier<W>>) -> Self {
        self.carrier = Some(carrier);
        self
    }

    fn is_far(&self, peer: WorldRank) -> bool {
        !self.routes[peer.index()].is_near()
    }

    /// Whether the carrier trades with this rank.
    fn is_traded(&self, peer: WorldRank) -> bool {
        self.is_far(peer) && self.carrier.as_deref().is_some_and(|carrier| carrier.trades_with(peer))
    }

    /// Tells all peers that this rank has stopped, except those that have stopped.
    fn tell_stopped(&mut self) {
        for route in &self.routes {
            let mut packet = Packet::new(self.rank, self.inbox.call(), Content::Stopped);
            while let Ok(Some(back)) = route.send(packet) {
                packet = back;
                thread::yield_now();
            }
        }
    }
}

impl<W: Send + 'static> End<W> {
    fn post(&mut self, peer: WorldRank, content: Content<W>) -> Result<()> {
        let mut packet = Packet::new(self.rank, self.inbox.call(), content);
        while let Some(back) = self.routes[peer.index()].send(packet)? {
            packet = back;
            self.inbox.take_in()?;
            thread::yield_now();
        }
        Ok(())
    }

    /// Calls the carrier, if there is one.
    fn carry<T>(
        &mut self,
        act: impl FnOnce(&mut dyn Carrier<W>, KeepGoing<'_>) -> Result<T>,
    ) -> Result<Option<T>> {
        let Some(carrier) = &mut self.carrier else {
            return Ok(None);
        };
        let inbox = &mut self.inbox;
        match act(carrier.as_mut(), &mut || inbox.take_in()) {
            Ok(done) => Ok(Some(done)),
            Err(error) => Err(self.first_cause(error)),
        }
    }

    /// The first cause of a carrier's error: if a peer has stopped, that is the cause.
    fn first_cause(&mut self, error: Error) -> Error {
        let since = Instant::now();
        loop {
            if let Err(stopped) = self.inbox.take_in() {
                return stopped;
            }
            if since.elapsed() > GRACE {
                return error;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Receives wires from the carrier, until none of the announced ones is `left`.
    fn take_posted(&mut self, left: impl Fn(&VecDeque<(WorldRank, Tag)>) -> bool) -> Result<()> {
        while left(&self.posted)
            && let Some((from, tag)) = self.posted.pop_front()
        {
            let wire = self.fetch(from, tag)?;
            self.inbox.keep(from, Content::Wire(tag, wire));
        }
        Ok(())
    }

    /// Waits for the wire with this tag.
    fn fetch(&mut self, peer: WorldRank, tag: Tag) -> Result<W> {
        let content = self.inbox.take(peer, is_wire(tag))?;
        self.unpack(peer, content)
    }

    /// The wire itself. If only its description has come, the carrier receives it.
    fn unpack(&mut self, peer: WorldRank, content: Content<W>) -> Result<W> {
        match content {
            Content::Wire(_, wire) | Content::Carried(_, wire) => Ok(wire),
            Content::Description(_, description) => {
                let wire = self.carry(|carrier, _| carrier.receive(peer, &description))?;
                let rank = self.rank;
                wire.ok_or_else(|| {
                    FabricError::failed(format!(
                        "rank {peer} sends numbers in a way that rank {rank} cannot receive: start all \
                         processes with the same devices"
                    ))
                    .into()
                })
            }
            Content::Block(..) | Content::Stopped | Content::Failed(_) => unreachable!("a wire was wanted"),
        }
    }
}

impl<W: Send + 'static> Transport<W> for End<W> {
    fn rank(&self) -> WorldRank {
        self.rank
    }

    fn ranks(&self) -> u32 {
        self.routes.len() as u32
    }

    fn begin(&mut self, call: Call) -> Result<()> {
        self.posted.clear();
        let is_restart = call.attempt > self.inbox.call().attempt;
        self.inbox.begin(call)?;
        if is_restart && self.carrier.is_some() {
            let (rank, attempt) = (self.rank, call.attempt);
            return Err(self.inbox.refuse(FabricError::failed(format!(
                "rank {rank} cannot begin attempt {attempt}: its carrier may still hold numbers of an \
                 earlier attempt; connect the ranks anew"
            ))));
        }
        Ok(())
    }

    fn stop(&mut self) {
        self.inbox.stop(self.rank);
        self.tell_stopped();
    }

    fn is_direct(&self, peer: WorldRank) -> bool {
        let carries = |carrier: &dyn Carrier<W>| carrier.reaches(peer) || carrier.trades_with(peer);
        !self.is_far(peer) || self.carrier.as_deref().is_some_and(carries)
    }

    fn start(&mut self, partners: &[WorldRank]) -> Result<()> {
        let alarm = self.alarm.clone();
        let far: Vec<_> = partners.iter().copied().filter(|peer| self.is_far(*peer)).collect();
        self.carry(|carrier, keep_going| carrier.start(&far, &alarm, keep_going)).map(|_| ())
    }

    fn check(&mut self) -> Result<()> {
        self.inbox.take_in()?;
        self.carry(|carrier, _| carrier.check()).map(|_| ())
    }

    fn send(&mut self, peer: WorldRank, tag: Tag, wire: W) -> Result<()> {
        if self.carrier.is_none() || !self.is_far(peer) {
            return self.post(peer, Content::Wire(tag, wire));
        }
        // A carrier must be called in the order of the schedule, for sends and receives.
        self.take_posted(|_| true)?;
        let carried = self.carry(|carrier, _| carrier.send(peer, &wire))?;
        let content = match carried {
            Some(true) => Content::Carried(tag, wire),
            _ => Content::Wire(tag, wire),
        };
        self.post(peer, content)
    }

    fn post_recv(&mut self, peer: WorldRank, tag: Tag) -> Result<()> {
        if self.carrier.is_some() && self.is_far(peer) {
            self.posted.push_back((peer, tag));
        }
        Ok(())
    }

    fn poll(&mut self, peer: WorldRank, tag: Tag) -> Result<Option<W>> {
        if self.carrier.is_some() && self.is_far(peer) {
            return Ok(None);
        }
        let content = self.inbox.poll(peer, is_wire(tag))?;
        content.map(|content| self.unpack(peer, content)).transpose()
    }

    fn wait(&mut self, peer: WorldRank, tag: Tag) -> Result<W> {
        // As above: receive what was announced earlier first.
        self.take_posted(|posted| posted.contains(&(peer, tag)))?;
        self.fetch(peer, tag)
    }

    fn trades_with(&self, peer: WorldRank) -> bool {
        self.is_traded(peer)
    }

    fn trade(&mut self, tag: Tag, given: Vec<(WorldRank, W)>, taken: &[Taken]) -> Result<()> {
        let (carried, sent): (Vec<_>, Vec<_>) =
            given.into_iter().partition(|(peer, _)| self.is_traded(*peer));
        for (peer, wire) in sent {
            self.send(peer, tag, wire)?;
        }
        let mut taken = taken.to_vec();
        taken.retain(|(peer, ..)| self.is_traded(*peer));
        if carried.is_empty() && taken.is_empty() {
            return Ok(());
        }
        // As for a send: what the rank does has the order of its list.
        self.take_posted(|_| true)?;
        let wires = self.carry(|carrier, _| carrier.trade(&carried, &taken))?;
        for (wire, (from, ..)) in wires.into_iter().flatten().zip(taken) {
            self.inbox.keep(from, Content::Wire(tag, wire));
        }
        Ok(())
    }

    fn await_trades(&mut self) -> Result<()> {
        self.carry(|carrier, _| carrier.await_trades()).map(|_| ())
    }

    fn send_bytes(&mut self, peer: WorldRank, tag: Tag, bytes: Vec<u8>) -> Result<()> {
        self.post(peer, Content::Block(tag, bytes))
    }

    fn recv_bytes(&mut self, peer: WorldRank, tag: Tag) -> Result<Vec<u8>> {
        Ok(block(self.inbox.take(peer, is_block(tag))?))
    }

    fn poll_bytes(&mut self, peer: WorldRank, tag: Tag) -> Result<Option<Vec<u8>>> {
        Ok(self.inbox.poll(peer, is_block(tag))?.map(block))
    }

    fn listen(&mut self) -> Result<()> {
        self.inbox.listen()
    }
}

/// Whether a packet is a block with this tag.
fn is_block<W>(tag: Tag) -> impl Fn(&Content<W>) -> bool {
    move |content| matches!(content, Content::Block(got, _) if *got == tag)
}

/// The bytes of a block.
fn block<W>(content: Content<W>) -> Vec<u8> {
    match content {
        Content::Block(_, bytes) => bytes,
        _ => unreachable!("a block was wanted"),
    }
}

/// Whether a packet is the wire with this tag, or its description.
fn is_wire<W>(tag: Tag) -> impl Fn(&Content<W>) -> bool {
    move |content| {
        matches!(
            content,
            Content::Wire(got, _) | Content::Carried(got, _) | Content::Description(got, _) if *got == tag
        )
    }
}

impl<W> Drop for End<W> {
    fn drop(&mut self) {
        self.inbox.close();
        self.tell_stopped();
    }
}

impl<W> std::fmt::Debug for End<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("End").field("rank", &self.rank).finish_non_exhaustive()
    }
}
