//! What a fabric gives for each other process: a line of bytes in both directions.

use std::io::{self, BufReader, IoSlice, Read, Write};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::Sender;

use super::head::{Head, invalid};
use super::status_queries::{Answer, Aside};
use crate::error::{Loss, Result};
use crate::fabric::feed::Feed;

/// Frames up to this size go out in one piece.
pub(in crate::fabric) const BUFFER: usize = 1 << 16;

/// The most bytes that are read with a frame's head, and copied once more.
const AHEAD: usize = 1 << 12;

/// The sending end of a line to another process. Its bytes arrive in order. The ranks of a process share it.
pub(in crate::fabric) trait Line: Send + Sync {
    /// Sends some of these bytes, as [`Write::write`]. Their memory may be used again when it returns.
    ///
    /// # Errors
    /// When the line has ended, or when the other process did not take the bytes within the limit.
    fn send(&self, bytes: &[u8]) -> io::Result<usize>;

    /// As [`Line::send`], from the first of these pieces on. A line that cannot send several at once sends
    /// the first one.
    ///
    /// # Errors
    /// As [`Line::send`].
    fn send_pieces(&self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let first = pieces.iter().find(|piece| !piece.is_empty());
        first.map_or(Ok(0), |piece| self.send(piece))
    }

    /// Sends a frame's head and its block, if this line can do it without waiting for the other process, or
    /// only if too much is on the way already. It keeps the memory until the block has gone, and then gives
    /// it to `spare`. Otherwise the block comes back, and nothing is sent.
    ///
    /// # Errors
    /// As for [`Line::post_wire`].
    fn post(&self, _head: Head, block: Vec<u8>, _spare: &Sender<Vec<u8>>) -> io::Result<Option<Vec<u8>>> {
        Ok(Some(block))
    }

    /// Whether [`Line::post_wire`] sends numbers that have this number of bytes.
    fn posts_wire(&self, _bytes: u64) -> bool {
        false
    }

    /// Sends a frame that begins with these bytes and ends with a wire's numbers. It keeps the wire until the
    /// numbers have gone. So it waits only if too much is on the way already.
    ///
    /// # Errors
    /// When the line has ended, or when the other process did not take enough within the limit.
    fn post_wire(&self, _begin: &[u8], _wire: Box<dyn Numbers>) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Takes a block of this length in bytes that does not follow its head. `place` is what the other end has
    /// written into the head's `numbers`.
    ///
    /// # Errors
    /// When it is not there.
    fn take(&self, _place: u64, _length: usize, _into: &mut Vec<u8>) -> io::Result<()> {
        Err(invalid("a block without its bytes"))
    }

    /// Whether a send may wait for the other process. If not, nothing needs a thread of its own to be sent
    /// beside the steps.
    fn waits(&self) -> bool {
        true
    }

    /// From now on a send may wait this long. At first it may wait for ever.
    ///
    /// # Errors
    /// Whatever the system reports.
    fn limit(&self, wait: Duration) -> io::Result<()>;

    /// Ends the line in both directions. What was sent before still arrives.
    fn close(&self);

    /// How the other process was lost, if it was, as far as the line can tell.
    fn loss(&self) -> Loss {
        Loss::Unknown
    }

    /// The run has failed. So closing must not wait for the other process.
    fn fail(&self) {}

    /// Asks the other process what it does. It answers even if its ranks are busy, or if much data is on the
    /// way to them.
    fn ask(&self);

    /// Asks the other process to look for a stall.
    fn nudge(&self);

    /// Its last answer.
    fn answer(&self) -> &Answer;

    /// While a question is open: whether the machine of the other process has taken it. `None` if that cannot
    /// be known.
    fn machine_answers(&self) -> Option<bool> {
        None
    }
}

/// [`Line::send`] as a stream.
pub(super) struct Outlet(pub(super) Arc<dyn Line>);

impl Write for Outlet {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.send(bytes)
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.send_pieces(pieces)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The lines of a process, and what reads from them.
pub(in crate::fabric) struct Lines {
    /// By process. `None` for this one.
    pub(in crate::fabric) lines: Vec<Option<Arc<dyn Line>>>,
    pub(in crate::fabric) start: Box<dyn StartsReaders>,
    /// By which a rank that waits can receive itself.
    pub(in crate::fabric) feed: Option<Arc<dyn Feed>>,
    /// Who is told that this process waits for a word of another one, if it is not simply to sleep.
    pub(in crate::fabric) heard_by: Option<Arc<dyn Feed>>,
    /// The processes on this one's machine, with this one, in order.
    pub(in crate::fabric) local: Vec<u32>,
    /// What the lines answer when others ask.
    pub(in crate::fabric) aside: Arc<Aside>,
}

/// Starts the threads that read from the lines.
pub(in crate::fabric) trait StartsReaders: Send {
    /// `readers`: by process, `None` for this one. The `threads` end some time after all lines were closed.
    ///
    /// # Errors
    /// When the system cannot start a thread. `threads` has those that it did start.
    fn start(
        self: Box<Self>,
        readers: Vec<Option<Box<dyn ReadsFrames>>>,
        threads: &mut Vec<JoinHandle<()>>,
    ) -> Result<()>;
}

/// The receiving end of a line that is read from here.
pub(in crate::fabric) fn inlet<R: Read>(from: R) -> BufReader<R> {
    BufReader::with_capacity(AHEAD, from)
}

/// The numbers of a wire. They are in memory that the wire keeps.
pub(in crate::fabric) trait Numbers: Send {
    #[cfg_attr(not(feature = "mpi"), allow(dead_code, reason = "sockets copy"))]
    fn bytes(&self) -> &[u8];
}

/// Reads what one process sends.
pub(in crate::fabric) trait ReadsFrames: Send {
    /// Waits for a frame and delivers it. Returns false when the line has ended. All are told then, and there
    /// is nothing more to read.
    fn frame(&mut self, from: &mut dyn Read) -> bool;

    /// Memory for the last `length` bytes of a frame that begins with `begin`. The caller fills it, and then
    /// calls [`ReadsFrames::frame`] with the beginning alone. `None`: all bytes are to be given to `frame`.
    #[cfg_attr(not(feature = "mpi"), allow(dead_code, reason = "sockets copy"))]
    fn room(&mut self, begin: &[u8], length: usize) -> Option<&mut [u8]>;
}
