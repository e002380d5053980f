//! The sending end of the connection to another process: frames on its line, and a farewell at the end.

use std::io::{self, BufWriter, IoSlice, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};

use super::head::{DESCRIPTION, Head, Kind, PIECE};
use super::kept::{self, Item};
use super::line::{BUFFER, Line, Numbers, Outlet};
use super::numbers::{Outgoing, TensorWire, panicked};
use crate::error::{Error, FabricError, Problem, ProcessLoss, Result};
use crate::fabric::packet::{Content, Packet, Route};
use crate::fabric::{Call, Tag, TensorForm, WireFrame};
use crate::id::WorldRank;

/// How many sent blocks are kept, so that their memory can be used again.
const SPARE: usize = 256;

/// How long a process that leaves waits for another one that does not read.
pub(super) const GRACE: Duration = Duration::from_secs(1);

/// The sending end of a connection, which the ranks of a process share.
pub(in crate::fabric) struct Connection {
    out: Mutex<Out>,
    /// For closing the connection while another thread writes.
    line: Arc<dyn Line>,
    /// Memory of sent blocks, for blocks to receive. A block is received for each one that is sent.
    spare: (Sender<Vec<u8>>, Receiver<Vec<u8>>),
    /// How many frames have come.
    heard: AtomicU64,
    ended: AtomicBool,
    given_up: AtomicBool,
}

struct Out {
    stream: BufWriter<Outlet>,
    description: Vec<u8>,
}

impl Connection {
    pub(super) fn new(line: Arc<dyn Line>) -> Self {
        Self {
            out: Mutex::new(Out {
                stream: BufWriter::with_capacity(BUFFER, Outlet(Arc::clone(&line))),
                description: Vec::new(),
            }),
            line,
            spare: bounded(SPARE),
            heard: AtomicU64::new(0),
            ended: AtomicBool::new(false),
            given_up: AtomicBool::new(false),
        }
    }

    /// For what is neither sent nor read in frames.
    pub(super) fn line(&self) -> &dyn Line {
        &*self.line
    }

    /// A frame has come from it. Only the thread that reads calls this.
    pub(super) fn hear(&self) {
        let heard = self.heard.load(Ordering::Relaxed);
        self.heard.store(heard + 1, Ordering::Relaxed);
    }

    /// How many frames have come from it.
    pub(super) fn heard(&self) -> u64 {
        self.heard.load(Ordering::Relaxed)
    }

    /// Nothing more will come from it.
    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    /// Whether it has ended, or the connection has.
    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    /// The other process holds all up, so this one does without it. It is told that, and the connection is
    /// closed.
    pub(super) fn give_up(&self, process: u32) {
        self.given_up.store(true, Ordering::Relaxed);
        self.leave(Instant::now() + GRACE, (process, ProcessLoss::Stalled));
    }

    /// Tells the other process that this one leaves, to join the run again without the `lost` one. Then
    /// closes the connection.
    pub(super) fn leave(&self, until: Instant, (lost, loss): (u32, ProcessLoss)) {
        // A process that has gone needs no farewell.
        let _ = self.tell_before(until, Kind::Rejoins, lost.into(), &[loss.to_byte()]);
        self.close();
    }

    /// How the other process was lost, if it was, as far as this one can tell.
    pub(super) fn loss(&self) -> ProcessLoss {
        match self.given_up.load(Ordering::Relaxed) {
            true => ProcessLoss::Stalled,
            false => self.line.loss(),
        }
    }

    /// Sends a frame from process to process. `number` is the number of the call or part.
    pub(super) fn tell(&self, kind: Kind, number: u64, bytes: &[u8]) -> io::Result<()> {
        let head = head(kind, [WorldRank(0); 2], Call::first(number), Tag(0));
        self.block(head, bytes)
    }

    /// Gives the other process something to keep, in pieces. Between two of them, others can send.
    pub(super) fn give(&self, item: &Item) -> io::Result<()> {
        let mut place = 0;
        for piece in item.bytes.chunks(PIECE as usize) {
            self.block(kept::head(item, place), piece)?;
            place += piece.len();
        }
        Ok(())
    }

    /// As [`Connection::tell`], but it fails if the other process has not read the frame by `until`.
    pub(super) fn tell_before(
        &self,
        until: Instant,
        kind: Kind,
        number: u64,
        bytes: &[u8],
    ) -> io::Result<()> {
        let mut out = self.out_before(until).ok_or(io::ErrorKind::TimedOut)?;
        let left = until.saturating_duration_since(Instant::now());
        self.line.limit(left.max(Duration::from_millis(1)))?;
        let head = head(kind, [WorldRank(0); 2], Call::first(number), Tag(0));
        self.or_close(block(&mut out, head, bytes))
    }

    /// From now on no frame waits long for a process that does not read. The run is over, and the frame's
    /// sender must learn it.
    pub(super) fn hurry(&self) {
        // The time limit holds only for later frames. If a frame waits already, closing the connection ends
        // it.
        let _ = self.line.limit(GRACE);
        if self.out_before(Instant::now() + GRACE).is_none() {
            self.close();
        }
    }

    /// Tells a rank of the other process that a wire between the two has failed.
    pub(super) fn tell_failed(
        &self,
        route: [WorldRank; 2],
        call: Call,
        tag: Tag,
        error: &FabricError,
    ) -> io::Result<()> {
        self.block(head(Kind::Failed, route, call, tag), error.to_string().as_bytes())
    }

    /// Takes a block that does not follow its head: see [`Line::take`].
    pub(super) fn take(&self, head: &Head, into: &mut Vec<u8>) -> io::Result<()> {
        self.line.take(head.numbers, head.length as usize, into)
    }

    /// Memory for the next block.
    pub(super) fn spare(&self) -> Vec<u8> {
        self.spare.1.try_recv().unwrap_or_default()
    }

    /// Closes the connection in both directions.
    pub(super) fn close(&self) {
        self.line.close();
    }

    fn block(&self, head: Head, bytes: &[u8]) -> io::Result<()> {
        self.or_close(block(&mut self.out(), head, bytes))
    }

    /// Sends a block, and keeps its memory.
    fn post(&self, head: Head, bytes: Vec<u8>) -> io::Result<()> {
        let mut out = self.out();
        let length = bytes.len() as u64;
        if self.line.posts(length) {
            let head = Head { length, ..head };
            return self.or_close(self.line.post(&head.to_bytes(), Numbers::block(bytes, &self.spare.0)));
        }
        let sent = match self.line.put(&bytes) {
            Some(numbers) => {
                let head = Head { length, numbers, ..head };
                head.write(&mut out.stream).and_then(|()| out.stream.flush())
            }
            None => block(&mut out, head, &bytes),
        };
        // With enough spare blocks, this one is freed.
        let _ = self.spare.0.try_send(bytes);
        self.or_close(sent)
    }

    /// Sends a wire from its own memory, if the line can keep it. Otherwise the wire comes back.
    fn post_wire<W: WireFrame>(&self, mut head: Head, wire: W) -> io::Result<Option<W>> {
        let fits = |form: &TensorForm<W>| self.line.posts((form.tensor)(&wire).bytes());
        let Some(form) = W::as_tensor().filter(fits) else {
            return Ok(Some(wire));
        };
        let mut out = self.out();
        let tensor = (form.tensor)(&wire);
        let begin = &mut out.description;
        begin.clear();
        begin.extend([0; Head::SIZE]);
        tensor.describe(begin);
        head.kind = Kind::ValidWire;
        head.length = (begin.len() - Head::SIZE) as u64;
        head.numbers = tensor.bytes();
        begin[..Head::SIZE].copy_from_slice(&head.to_bytes());
        let numbers = Numbers::wire(TensorWire { wire, form });
        self.or_close(self.line.post(begin, numbers)).map(|()| None)
    }

    /// The result of a frame. If it failed, the connection is closed: no frame can follow half a frame.
    fn or_close<T>(&self, frame: io::Result<T>) -> io::Result<T> {
        frame.inspect_err(|_| self.close())
    }

    /// Sends a wire, or only its description if its numbers are `carried` otherwise. Returns why the wire
    /// failed, if it did. The connection can still be used then.
    fn wire<W: WireFrame>(&self, mut head: Head, wire: &W, carried: bool) -> io::Result<io::Result<()>> {
        let mut out = self.out();
        let Out { stream, description } = &mut *out;
        description.clear();
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| wire.describe(description))) {
            return Ok(Err(panicked(panic.as_ref())));
        }
        head.length = description.len() as u64;
        if head.length > DESCRIPTION {
            return Ok(Err(io::Error::other(format!(
                "its description has {} bytes, and {DESCRIPTION} is the most",
                head.length
            ))));
        }
        if carried {
            head.write(stream)?;
            stream.write_all(description)?;
            return stream.flush().map(Ok);
        }
        head.numbers = wire.bytes();
        head.write(stream)?;
        stream.write_all(description)?;
        let written = Outgoing::write(stream, head.numbers, wire)?;
        stream.write_all(&[u8::from(written.is_ok())])?;
        stream.flush()?;
        Ok(written)
    }

    /// The sending end, locked for one frame.
    fn out(&self) -> MutexGuard<'_, Out> {
        // If a thread panicked in the middle of a frame, its rank has ended, and so has the run.
        self.out.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same, but `None` if another thread still holds it at `until`.
    fn out_before(&self, until: Instant) -> Option<MutexGuard<'_, Out>> {
        loop {
            match self.out.try_lock() {
                Ok(out) => return Some(out),
                Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) if Instant::now() >= until => return None,
                Err(TryLockError::WouldBlock) => thread::sleep(Duration::from_millis(1)),
            }
        }
    }
}

fn block(out: &mut Out, head: Head, bytes: &[u8]) -> io::Result<()> {
    let length = bytes.len() as u64;
    let head = Head { length, ..head };
    if bytes.len() > BUFFER {
        // The buffer is empty between frames. A head that comes alone would wake its reader too early.
        return write_both(out.stream.get_mut(), &head.to_bytes(), bytes);
    }
    head.write(&mut out.stream)?;
    out.stream.write_all(bytes)?;
    out.stream.flush()
}

/// Writes one after the other, if possible at once.
fn write_both(stream: &mut impl Write, head: &[u8], bytes: &[u8]) -> io::Result<()> {
    let mut written = 0;
    while written < head.len() {
        match stream.write_vectored(&[IoSlice::new(&head[written..]), IoSlice::new(bytes)]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(more) => written += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    stream.write_all(&bytes[written - head.len()..])
}

fn head(kind: Kind, route: [WorldRank; 2], call: Call, tag: Tag) -> Head {
    Head { kind, call, route, tag, length: 0, numbers: 0 }
}

/// The route to a rank of another process.
pub(in crate::fabric) struct FarRoute {
    connection: Arc<Connection>,
    to: WorldRank,
}

impl FarRoute {
    pub(in crate::fabric) fn new(connection: &Arc<Connection>, to: WorldRank) -> Self {
        Self { connection: Arc::clone(connection), to }
    }

    /// Sends a wire on the host.
    fn whole<W: WireFrame>(&self, head: Head, wire: W) -> Result<()> {
        match self.connection.post_wire(head, wire) {
            Ok(None) => Ok(()),
            Ok(Some(wire)) => self.wire(head, &wire, false),
            Err(_) => Err(Error::PeerGone(self.to)),
        }
    }

    fn wire<W: WireFrame>(&self, head: Head, wire: &W, carried: bool) -> Result<()> {
        let (from, to, tag) = (head.route[0], self.to, head.tag.0);
        let sent = self.connection.wire(head, wire, carried);
        let sent = self.connection.or_close(sent);
        let Err(source) = sent.map_err(|_| Error::PeerGone(to))? else {
            return Ok(());
        };
        let error = FabricError::Failed(Problem::because(
            format!("rank {from} cannot send rank {to} the wire with tag {tag:#x}: {source}"),
            source,
        ));
        // If the other process cannot be told, it will see the connection end.
        let _ = self.connection.tell_failed(head.route, head.call, head.tag, &error);
        Err(error.into())
    }
}

impl<W: WireFrame> Route<W> for FarRoute {
    fn is_near(&self) -> bool {
        false
    }

    fn send(&self, packet: Packet<W>) -> Result<Option<Packet<W>>> {
        let (between, call) = ([packet.from, self.to], packet.call());
        let head = |kind, tag| head(kind, between, call, tag);
        let connection = &self.connection;
        let sent = match packet.content {
            // If a device cannot give its numbers, it fails before the frame begins.
            Content::Wire(tag, wire) => {
                return self.whole(head(Kind::Wire, tag), wire.to_host()?).map(|()| None);
            }
            Content::Carried(tag, wire) => {
                return self.wire(head(Kind::Description, tag), &wire, true).map(|()| None);
            }
            Content::Description(tag, description) => {
                connection.block(head(Kind::Description, tag), &description)
            }
            Content::Block(tag, bytes) => connection.post(head(Kind::Block, tag), bytes),
            Content::Stopped => connection.block(head(Kind::Stopped, Tag(0)), &[]),
            Content::Failed(error) => connection.tell_failed(between, call, Tag(0), &error),
        };
        sent.map(|()| None).map_err(|_| Error::PeerGone(self.to))
    }
}

/// Tells all that this process leaves, because this one was lost: to join the run again, or for another one
/// in its own place. Then closes the connections.
pub(super) fn leave(connections: &[Option<Arc<Connection>>], (lost, loss): (u32, ProcessLoss)) {
    let until = Instant::now() + GRACE;
    for connection in connections.iter().flatten() {
        connection.leave(until, (lost, loss));
    }
}

/// Tells all that this process leaves, and the cause if it is this process's failure, or the loss of another
/// process, which not all need have noticed. Then closes the connections.
pub(super) fn farewell(connections: &[Option<Arc<Connection>>], cause: Option<&Error>) {
    let has_failed = cause.is_some();
    let (kind, number, bytes) = match cause.and_then(Error::lost) {
        Some((lost, loss)) => (Kind::Rejoins, lost.into(), vec![loss.to_byte()]),
        None => {
            let cause = cause.filter(|error| !error.is_echo());
            let cause = cause.map_or(String::new(), ToString::to_string);
            (Kind::Farewell, 0, cause.into_bytes())
        }
    };
    let until = Instant::now() + GRACE;
    for connection in connections.iter().flatten() {
        if has_failed {
            connection.line().fail();
        }
        // A process that has gone needs no farewell.
        let _ = connection.tell_before(until, kind, number, &bytes);
        connection.close();
    }
}
