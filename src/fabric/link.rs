//! The sending end of a socket to another process, and the form of what goes over it.

use std::io::{self, BufWriter, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};
use socket2::{SockRef, TcpKeepalive};

use super::{Tag, WireFrame};
use crate::error::{Error, Result};
use crate::id::Rank;

/// Frames up to this size go out in one piece.
pub(super) const BUFFER: usize = 1 << 16;

/// So long nothing is heard of the other machine before it is asked whether it is there, so often, and so many times.
const QUIET: Duration = Duration::from_secs(10);
const BETWEEN_PROBES: Duration = Duration::from_secs(5);
const PROBES: u32 = 3;

/// So long may what is sent go unheard.
#[cfg(target_os = "linux")]
const UNHEARD: Duration = Duration::from_secs(30);

/// Blocks that have been sent and wait to carry what comes.
const SPARE: usize = 256;

/// What a frame carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A wire: its description, then its numbers.
    Wire,
    /// The description of a wire whose numbers come by other means.
    Header,
    /// A block, from rank to rank.
    Bytes,
    /// The rank has stopped.
    Gone,
    /// A block, from process to process.
    Word,
    /// The process leaves; the text says why, if it is for a failure.
    Farewell,
}

impl Kind {
    const ALL: [Self; 6] = [
        Self::Wire,
        Self::Header,
        Self::Bytes,
        Self::Gone,
        Self::Word,
        Self::Farewell,
    ];
}

/// What stands before every frame: four numbers of 8 bytes, little endian.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    pub(super) kind: Kind,
    /// The sending and the receiving rank.
    pub(super) route: [Rank; 2],
    pub(super) tag: Tag,
    /// The bytes of the description or of the block.
    pub(super) length: u64,
}

impl Head {
    fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let [from, rank] = self.route.map(|rank| u64::from(rank.0));
        let numbers = [self.kind as u64, from << 32 | rank, self.tag.0, self.length];
        numbers
            .iter()
            .try_for_each(|number| to.write_all(&number.to_le_bytes()))
    }

    /// The next frame's head.
    pub(super) fn read(from: &mut impl Read) -> io::Result<Self> {
        let mut bytes = [0; 32];
        from.read_exact(&mut bytes)?;
        let number = |index: usize| u64::from_le_bytes(bytes.as_chunks().0[index]);
        let kind = Kind::ALL.get(number(0) as usize).ok_or(ErrorKind::InvalidData)?;
        Ok(Self {
            kind: *kind,
            route: [Rank((number(1) >> 32) as u32), Rank(number(1) as u32)],
            tag: Tag(number(2)),
            length: number(3),
        })
    }
}

/// How a rank sends to one of another process: [`Error::PeerGone`] when that cannot be reached any more.
pub(super) trait Far<W>: Send + Sync {
    /// A wire, or its header alone when its numbers are `carried` by other means.
    fn wire(&self, route: [Rank; 2], tag: Tag, wire: W, carried: bool) -> Result<()>;

    /// A block.
    fn bytes(&self, route: [Rank; 2], bytes: Vec<u8>) -> Result<()>;

    /// The sending rank has stopped.
    fn gone(&self, route: [Rank; 2]) -> Result<()>;
}

/// The sending end of a socket, which the ranks of a process share.
pub(super) struct Link {
    out: Mutex<Out>,
    /// For whoever ends the connection while another writes.
    stream: TcpStream,
    /// Memory of blocks that were sent, for blocks that come: each one that is sent is answered by another.
    spare: (Sender<Vec<u8>>, Receiver<Vec<u8>>),
}

struct Out {
    stream: BufWriter<TcpStream>,
    description: Vec<u8>,
}

impl Link {
    pub(super) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        watch(&stream)?;
        Ok(Self {
            out: Mutex::new(Out {
                stream: BufWriter::with_capacity(BUFFER, stream.try_clone()?),
                description: Vec::new(),
            }),
            stream,
            spare: bounded(SPARE),
        })
    }

    /// The receiving end.
    pub(super) fn incoming(&self) -> io::Result<TcpStream> {
        self.stream.try_clone()
    }

    /// A block between processes.
    pub(super) fn word(&self, kind: Kind, bytes: &[u8]) -> io::Result<()> {
        self.block(kind, [Rank(0); 2], bytes)
    }

    /// Memory for a block that comes.
    pub(super) fn spare(&self) -> Vec<u8> {
        self.spare.1.try_recv().unwrap_or_default()
    }

    /// Ends the connection, both ways.
    pub(super) fn close(&self) {
        // Whoever has closed it before has done the same.
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    fn block(&self, kind: Kind, route: [Rank; 2], bytes: &[u8]) -> io::Result<()> {
        let head = Head {
            kind,
            route,
            tag: Tag(0),
            length: bytes.len() as u64,
        };
        let stream = &mut self.out().stream;
        head.write(stream)?;
        stream.write_all(bytes)?;
        stream.flush()
    }

    /// The way out, for one frame.
    fn out(&self) -> MutexGuard<'_, Out> {
        // A thread that panicked in the middle of a frame has ended its rank, and with it the run.
        self.out.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Has the system end the connection when the other machine is no longer there: about half a minute after it was heard of last,
/// whether it is listened to or spoken to.
fn watch(stream: &TcpStream) -> io::Result<()> {
    let socket = SockRef::from(stream);
    let probes = TcpKeepalive::new()
        .with_time(QUIET)
        .with_interval(BETWEEN_PROBES)
        .with_retries(PROBES);
    socket.set_tcp_keepalive(&probes)?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(UNHEARD))?;
    Ok(())
}

impl<W: WireFrame> Far<W> for Link {
    fn wire(&self, route: [Rank; 2], tag: Tag, wire: W, carried: bool) -> Result<()> {
        // Whatever can fail but the connection does before the frame has begun.
        let wire = if carried { wire } else { wire.to_host()? };
        let mut out = self.out();
        out.description.clear();
        wire.describe(&mut out.description);
        let head = Head {
            kind: if carried { Kind::Header } else { Kind::Wire },
            route,
            tag,
            length: out.description.len() as u64,
        };
        let Out { stream, description } = &mut *out;
        let mut write = || {
            head.write(stream)?;
            stream.write_all(description)?;
            if !carried {
                wire.write(stream)?;
            }
            stream.flush()
        };
        told(route, write())
    }

    fn bytes(&self, route: [Rank; 2], bytes: Vec<u8>) -> Result<()> {
        told(route, self.block(Kind::Bytes, route, &bytes))?;
        // With enough of them spare this one is freed.
        let _ = self.spare.0.try_send(bytes);
        Ok(())
    }

    fn gone(&self, route: [Rank; 2]) -> Result<()> {
        told(route, self.block(Kind::Gone, route, &[]))
    }
}

fn told(route: [Rank; 2], written: io::Result<()>) -> Result<()> {
    written.map_err(|_| Error::PeerGone(route[1]))
}
