//! An end that keeps what comes, so that its rank can begin a call again without the help of the others.

use foldhash::{HashMap, HashMapExt};
use pipewright_stages::Bytes;

use super::{Call, Tag, Taken, Transport};
use crate::error::{RestartError, Result};
use crate::id::WorldRank;

/// An end that keeps what comes in some calls: see [`Transport::keep`]. When its rank begins such a call
/// again, it is given the same once more, and what it sends a second time is dropped. The other ranks notice
/// nothing.
///
/// It relies on this: what a rank sends to a peer under one tag has the same order each time.
pub struct Recorded<W> {
    end: Box<dyn Transport<W> + Send>,
    copy: fn(&W) -> W,
    /// The call that the rank is in.
    call: Call,
    /// The newest call that has begun. The rank is in an earlier one only while it repeats that.
    newest: Call,
    kept: Vec<(Call, Received<W>)>,
    /// The bytes of all that is kept.
    bytes: u64,
    /// Records of calls that were forgotten. Their memory is used again.
    spare: Vec<Received<W>>,
}

/// What came in a call, and what was done in it.
struct Received<W> {
    wires: HashMap<(WorldRank, Tag), Came<W>>,
    blocks: HashMap<(WorldRank, Tag), Came<Vec<u8>>>,
    done: HashMap<(Deed, WorldRank, Tag), Done>,
}

/// What came from one rank under one tag.
struct Came<T> {
    items: Vec<T>,
    /// How many of them the rank has taken since it began the call last.
    taken: usize,
}

/// What a rank does that must not be done twice.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Deed {
    SendWire,
    SendBlock,
    Announce,
    Trade,
}

/// How often something was done: at all, and since the rank began the call last.
#[derive(Default)]
struct Done {
    ever: u32,
    now: u32,
}

impl<W: Bytes + 'static> Recorded<W> {
    /// The same end, which keeps what comes where it is told to. `copy` copies a wire.
    pub fn new(end: Box<dyn Transport<W> + Send>, copy: fn(&W) -> W) -> Self {
        Self {
            end,
            copy,
            call: Call::default(),
            newest: Call::default(),
            kept: Vec::new(),
            bytes: 0,
            spare: Vec::new(),
        }
    }

    /// The record of the current call, if it is kept.
    fn record(&mut self) -> Option<&mut Received<W>> {
        let call = self.call;
        let mut kept = self.kept.iter_mut().rev();
        kept.find_map(|(of, kept)| (*of == call).then_some(kept))
    }

    /// Whether the rank does this for the first time in this call.
    fn is_new(&mut self, deed: Deed, peer: WorldRank, tag: Tag) -> Result<bool> {
        let is_old = self.call < self.newest;
        let is_new = self.record().is_none_or(|kept| {
            let done = kept.done.entry((deed, peer, tag)).or_default();
            done.now += 1;
            let is_new = done.now > done.ever;
            done.ever = done.ever.max(done.now);
            is_new
        });
        match is_new && is_old {
            true => Err(self.differs(peer)),
            false => Ok(is_new),
        }
    }

    /// Fails in a repeated call that has ended for the others: nothing new can come in it.
    fn check_current(&self, peer: WorldRank) -> Result<()> {
        match self.call < self.newest {
            true => Err(self.differs(peer)),
            false => Ok(()),
        }
    }

    fn differs(&self, peer: WorldRank) -> crate::Error {
        let (rank, call) = (self.end.rank(), self.call.number);
        RestartError::new(format!(
            "rank {rank} was built again and repeated call {call}, but does not send to rank {peer} and \
             receive from it what it did before: a stage may depend only on its parameters, its input, the \
             step and the micro-batch; with a stage that does not, set `train.restarts` to 0"
        ))
        .into()
    }

    /// A wire that the rank took before, in this call.
    fn wire_again(&mut self, peer: WorldRank, tag: Tag) -> Option<W> {
        let copy = self.copy;
        let wires = &mut self.record()?.wires;
        wires.get_mut(&(peer, tag))?.again(copy)
    }

    /// A block that the rank took before, in this call.
    fn block_again(&mut self, peer: WorldRank, tag: Tag) -> Option<Vec<u8>> {
        let blocks = &mut self.record()?.blocks;
        blocks.get_mut(&(peer, tag))?.again(Vec::clone)
    }

    fn keep_wire(&mut self, peer: WorldRank, tag: Tag, wire: W) -> W {
        let copy = self.copy;
        if let Some(kept) = self.record() {
            kept.wires.entry((peer, tag)).or_default().add(copy(&wire));
            self.bytes += wire.bytes();
        }
        wire
    }

    fn keep_block(&mut self, peer: WorldRank, tag: Tag, block: Vec<u8>) -> Vec<u8> {
        if let Some(kept) = self.record() {
            kept.blocks.entry((peer, tag)).or_default().add(block.clone());
            self.bytes += block.len() as u64;
        }
        block
    }
}

impl<W> Default for Received<W> {
    fn default() -> Self {
        Self { wires: HashMap::new(), blocks: HashMap::new(), done: HashMap::new() }
    }
}

impl<W> Received<W> {
    /// The rank begins the call again.
    fn begin_again(&mut self) {
        self.wires.values_mut().for_each(|came| came.taken = 0);
        self.blocks.values_mut().for_each(|came| came.taken = 0);
        self.done.values_mut().for_each(|done| done.now = 0);
    }

    /// Forgets all, for another call. That will use the same tags, so their places stay.
    fn clear(&mut self) {
        self.wires.values_mut().for_each(Came::clear);
        self.blocks.values_mut().for_each(Came::clear);
        self.done.values_mut().for_each(|done| *done = Done::default());
    }
}

impl<T> Default for Came<T> {
    fn default() -> Self {
        Self { items: Vec::new(), taken: 0 }
    }
}

impl<T> Came<T> {
    fn again(&mut self, copy: impl Fn(&T) -> T) -> Option<T> {
        let item = self.items.get(self.taken).map(copy)?;
        self.taken += 1;
        Some(item)
    }

    fn add(&mut self, item: T) {
        self.items.push(item);
        self.taken = self.items.len();
    }

    fn clear(&mut self) {
        self.items.clear();
        self.taken = 0;
    }
}

impl<W: Bytes + 'static> Transport<W> for Recorded<W> {
    fn rank(&self) -> WorldRank {
        self.end.rank()
    }

    fn ranks(&self) -> u32 {
        self.end.ranks()
    }

    fn begin(&mut self, call: Call) -> Result<()> {
        self.call = call;
        if call > self.newest {
            self.newest = call;
            return self.end.begin(call);
        }
        if let Some(kept) = self.record() {
            kept.begin_again();
        }
        Ok(())
    }

    fn end(&mut self) {
        self.end.end();
    }

    fn keep(&mut self, call: Call) {
        let kept = self.spare.pop().unwrap_or_default();
        self.kept.push((call, kept));
    }

    fn kept(&self) -> u64 {
        self.bytes
    }

    fn forget(&mut self) {
        self.bytes = 0;
        for (_, mut kept) in self.kept.drain(..) {
            kept.clear();
            self.spare.push(kept);
        }
    }

    fn stop(&mut self) {
        self.end.stop();
    }

    fn is_direct(&self, peer: WorldRank) -> bool {
        self.end.is_direct(peer)
    }

    fn start(&mut self, partners: &[WorldRank]) -> Result<()> {
        self.end.start(partners)
    }

    fn check(&mut self) -> Result<()> {
        self.end.check()
    }

    fn send(&mut self, peer: WorldRank, tag: Tag, wire: W) -> Result<()> {
        match self.is_new(Deed::SendWire, peer, tag)? {
            true => self.end.send(peer, tag, wire),
            false => Ok(()),
        }
    }

    fn post_recv(&mut self, peer: WorldRank, tag: Tag) -> Result<()> {
        match self.is_new(Deed::Announce, peer, tag)? {
            true => self.end.post_recv(peer, tag),
            false => Ok(()),
        }
    }

    fn poll(&mut self, peer: WorldRank, tag: Tag) -> Result<Option<W>> {
        if let Some(wire) = self.wire_again(peer, tag) {
            return Ok(Some(wire));
        }
        self.check_current(peer)?;
        let wire = self.end.poll(peer, tag)?;
        Ok(wire.map(|wire| self.keep_wire(peer, tag, wire)))
    }

    fn wait(&mut self, peer: WorldRank, tag: Tag) -> Result<W> {
        if let Some(wire) = self.wire_again(peer, tag) {
            return Ok(wire);
        }
        self.check_current(peer)?;
        let wire = self.end.wait(peer, tag)?;
        Ok(self.keep_wire(peer, tag, wire))
    }

    fn trades_with(&self, peer: WorldRank) -> bool {
        self.end.trades_with(peer)
    }

    fn trade(&mut self, tag: Tag, given: Vec<(WorldRank, W)>, taken: &[Taken]) -> Result<()> {
        match self.is_new(Deed::Trade, self.end.rank(), tag)? {
            true => self.end.trade(tag, given, taken),
            false => Ok(()),
        }
    }

    fn await_trades(&mut self) -> Result<()> {
        self.end.await_trades()
    }

    fn send_bytes(&mut self, peer: WorldRank, tag: Tag, bytes: Vec<u8>) -> Result<()> {
        match self.is_new(Deed::SendBlock, peer, tag)? {
            true => self.end.send_bytes(peer, tag, bytes),
            false => Ok(()),
        }
    }

    fn recv_bytes(&mut self, peer: WorldRank, tag: Tag) -> Result<Vec<u8>> {
        if let Some(block) = self.block_again(peer, tag) {
            return Ok(block);
        }
        self.check_current(peer)?;
        let block = self.end.recv_bytes(peer, tag)?;
        Ok(self.keep_block(peer, tag, block))
    }

    fn poll_bytes(&mut self, peer: WorldRank, tag: Tag) -> Result<Option<Vec<u8>>> {
        if let Some(block) = self.block_again(peer, tag) {
            return Ok(Some(block));
        }
        self.check_current(peer)?;
        let block = self.end.poll_bytes(peer, tag)?;
        Ok(block.map(|block| self.keep_block(peer, tag, block)))
    }

    fn listen(&mut self) -> Result<()> {
        self.end.listen()
    }
}

impl<W> std::fmt::Debug for Recorded<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recorded").field("call", &self.call).finish_non_exhaustive()
    }
}
