//! The sending end of a socket to another process.

use std::io::{self, BufWriter, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};
use socket2::{SockRef, TcpKeepalive};

use super::bootstrap::Lines;
use super::head::{DESCRIPTION, Head, Kind};
use super::numbers::{Outgoing, panicked};
use crate::error::{Error, FabricError, Result};
use crate::fabric::packet::{Content, Packet, Route};
use crate::fabric::{Call, Tag, WireFrame};
use crate::id::WorldRank;

/// Frames up to this size go out in one piece.
pub(super) const BUFFER: usize = 1 << 16;

/// How many blocks that have been sent wait to carry what comes.
const SPARE: usize = 256;

/// The sending end of a socket, which the ranks of a process share.
pub(in crate::fabric) struct Connection {
    out: Mutex<Out>,
    /// For whoever ends the connection while another thread writes.
    stream: TcpStream,
    /// Tells when the other machine has gone.
    watch: TcpStream,
    /// Memory of blocks that were sent, for blocks that come: each one that is sent is answered by another.
    spare: (Sender<Vec<u8>>, Receiver<Vec<u8>>),
}

struct Out {
    stream: BufWriter<TcpStream>,
    description: Vec<u8>,
}

impl Connection {
    /// `silence` is how long nothing may be heard of the other machine.
    pub(super) fn new(lines: Lines, silence: Duration) -> io::Result<Self> {
        let Lines { data: stream, watch } = lines;
        stream.set_nodelay(true)?;
        probe(&watch, silence)?;
        Ok(Self {
            out: Mutex::new(Out {
                stream: BufWriter::with_capacity(BUFFER, stream.try_clone()?),
                description: Vec::new(),
            }),
            stream,
            watch,
            spare: bounded(SPARE),
        })
    }

    /// The receiving end.
    pub(super) fn incoming(&self) -> io::Result<TcpStream> {
        self.stream.try_clone()
    }

    /// Waits until the connection ends, and ends it when the other machine has gone.
    pub(super) fn watch(&self) {
        match (&self.watch).read(&mut [0]) {
            // The other process has ended: what it still said is read first.
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
            Err(_) => self.close(),
        }
    }

    /// Sends a frame from process to process; `number` is the number of what it is part of.
    pub(super) fn tell(&self, kind: Kind, number: u64, bytes: &[u8]) -> io::Result<()> {
        let head = head(kind, [WorldRank(0); 2], Call::first(number), Tag(0));
        self.block(head, bytes)
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

    /// Memory for a block that comes.
    pub(super) fn spare(&self) -> Vec<u8> {
        self.spare.1.try_recv().unwrap_or_default()
    }

    /// Ends the connection, both ways.
    pub(super) fn close(&self) {
        // Whoever has closed it before has done the same.
        let _ = self.stream.shutdown(Shutdown::Both);
        let _ = self.watch.shutdown(Shutdown::Both);
    }

    fn block(&self, head: Head, bytes: &[u8]) -> io::Result<()> {
        let length = bytes.len() as u64;
        let stream = &mut self.out().stream;
        Head { length, ..head }.write(stream)?;
        stream.write_all(bytes)?;
        stream.flush()
    }

    /// Sends a wire, or its description alone when its numbers are `carried` by other means. Gives why the
    /// wire failed, when it did; the connection goes on then.
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

    /// The way out, for one frame.
    fn out(&self) -> MutexGuard<'_, Out> {
        // A thread that panicked in the middle of a frame has ended its rank, and with it the run.
        self.out.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Says to all that this process leaves, and why if the cause is its own, and ends the connections.
pub(super) fn farewell(connections: &[Option<Arc<Connection>>], cause: Option<&Error>) {
    let cause = cause.filter(|error| !error.is_echo());
    let cause = cause.map_or(String::new(), ToString::to_string);
    for connection in connections.iter().flatten() {
        // Whoever is gone needs no word.
        let _ = connection.tell(Kind::Farewell, 0, cause.as_bytes());
        connection.close();
    }
}

/// Has the system ask whether the other machine is there, and end the connection when it is not heard of for
/// so long.
///
/// Only an idle connection is asked about, so this is one on which nothing is ever written. A process that is
/// stopped reads nothing, and then what it is sent waits here, for as long as it takes; but its machine
/// answers. A machine that has gone answers nothing.
fn probe(stream: &TcpStream, silence: Duration) -> io::Result<()> {
    let second = Duration::from_secs(1);
    let (quiet, between) = ((silence / 3).max(second), (silence / 6).max(second));
    let probes = silence
        .saturating_sub(quiet)
        .div_duration_f64(between)
        .round()
        .max(1.0);
    let keepalive = TcpKeepalive::new()
        .with_time(quiet)
        .with_interval(between)
        .with_retries(probes as u32);
    SockRef::from(stream).set_tcp_keepalive(&keepalive)
}

fn head(kind: Kind, route: [WorldRank; 2], call: Call, tag: Tag) -> Head {
    Head {
        kind,
        call,
        route,
        tag,
        length: 0,
        numbers: 0,
    }
}

/// The way to a rank of another process.
pub(in crate::fabric) struct SocketRoute {
    connection: Arc<Connection>,
    to: WorldRank,
}

impl SocketRoute {
    pub(in crate::fabric) fn new(connection: &Arc<Connection>, to: WorldRank) -> Self {
        Self {
            connection: Arc::clone(connection),
            to,
        }
    }

    fn wire<W: WireFrame>(&self, head: Head, wire: &W, carried: bool) -> Result<()> {
        let (from, to, tag) = (head.route[0], self.to, head.tag.0);
        let sent = self.connection.wire(head, wire, carried);
        let Err(source) = sent.map_err(|_| Error::PeerGone(to))? else {
            return Ok(());
        };
        let source = Arc::new(source);
        let error = FabricError::CannotWrite {
            from,
            to,
            tag,
            source,
        };
        // Who cannot be told any more sees the connection end.
        let _ = self
            .connection
            .tell_failed(head.route, head.call, head.tag, &error);
        Err(error.into())
    }
}

impl<W: WireFrame> Route<W> for SocketRoute {
    fn is_near(&self) -> bool {
        false
    }

    fn send(&self, packet: Packet<W>) -> Result<Option<Packet<W>>> {
        let head = |kind, tag| head(kind, [packet.from, self.to], packet.call, tag);
        let connection = &self.connection;
        let sent = match packet.content {
            // A device that cannot give its numbers fails before the frame begins.
            Content::Wire(tag, wire) => {
                return self
                    .wire(head(Kind::Wire, tag), &wire.to_host()?, false)
                    .map(|()| None);
            }
            Content::Carried(tag, wire) => {
                return self
                    .wire(head(Kind::Description, tag), &wire, true)
                    .map(|()| None);
            }
            Content::Description(tag, description) => {
                connection.block(head(Kind::Description, tag), &description)
            }
            Content::Block(bytes) => {
                let sent = connection.block(head(Kind::Block, Tag(0)), &bytes);
                // With enough of them spare this one is freed.
                let _ = connection.spare.0.try_send(bytes);
                sent
            }
            Content::Stopped => connection.block(head(Kind::Stopped, Tag(0)), &[]),
            Content::Failed(error) => {
                connection.tell_failed([packet.from, self.to], packet.call, Tag(0), &error)
            }
        };
        sent.map(|()| None).map_err(|_| Error::PeerGone(self.to))
    }
}
