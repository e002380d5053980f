//! What a fabric gives for each other process: a line of bytes in both directions.

use std::io::{self, BufReader, IoSlice, Read, Write};
use std::mem;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::Sender;

use super::from_process::FromProcess;
use super::head::invalid;
use super::status_queries::Aside;
use crate::error::{ProcessLoss, Result};
use crate::fabric::feed::Feed;

/// Frames up to this size go out in one piece.
pub(in crate::fabric) const BUFFER: usize = 1 << 16;

/// The most bytes that are read with a frame's head, and copied once more.
const AHEAD: usize = 1 << 12;

/// The sending end of a line to another process. Its bytes arrive in order. The ranks of a process share it.
pub trait Line: Send + Sync {
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

    /// Whether [`Line::post`] sends this number of bytes.
    fn posts(&self, _bytes: u64) -> bool {
        false
    }

    /// Sends a frame that begins with these bytes and ends with these numbers. It keeps the numbers until
    /// they have gone. So it waits only if too much is on the way already.
    ///
    /// # Errors
    /// When the line has ended, or when the other process did not take enough within the limit.
    fn post(&self, _begin: &[u8], _numbers: Numbers) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Puts a block where the other process can take it by [`Line::take`], such as into memory that both
    /// share. Returns its place there, which is not 0 and goes over the line. `None`: the block has to go
    /// over the line too.
    fn put(&self, _block: &[u8]) -> Option<u64> {
        None
    }

    /// Takes a block of this length in bytes, which the other process has put at this place.
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
    fn loss(&self) -> ProcessLoss {
        ProcessLoss::Unknown
    }

    /// The run has failed. So closing must not wait for the other process.
    fn fail(&self) {}

    /// Says a word to the other process, which gives it to [`Aside::hear`]. It must not wait for what is on
    /// the way by [`Line::send`]. Nobody is told if the line has ended.
    fn say(&self, word: &[u8]);

    /// While a question ([`Aside::QUESTION`]) is open: whether the machine of the other process has taken it.
    /// `None` if that cannot be known.
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
pub struct Lines {
    /// By process. `None` for this one.
    pub lines: Vec<Option<Arc<dyn Line>>>,
    /// Is called when this process begins to read.
    pub start: Start,
    /// By which a rank that waits can receive itself.
    pub feed: Option<Arc<dyn Feed>>,
    /// The processes on this one's machine, with this one, in order.
    pub local: Vec<u32>,
    /// What takes the words that come by the lines. It is for all these processes.
    pub aside: Arc<Aside>,
}

/// Starts to read from the lines. By process, with `None` for this one, it is given what takes in the bytes.
/// Its threads, if it needs any, go into the list, also if it fails. They end some time after all lines were
/// closed.
pub type Start = Box<dyn FnOnce(Vec<Option<FromProcess>>, &mut Vec<JoinHandle<()>>) -> Result<()> + Send>;

impl std::fmt::Debug for Lines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lines").field("processes", &self.lines.len()).finish_non_exhaustive()
    }
}

/// The receiving end of a line that is read from here.
pub(in crate::fabric) fn inlet<R: Read>(from: R) -> BufReader<R> {
    BufReader::with_capacity(AHEAD, from)
}

/// The last bytes of a frame: the numbers of a wire, or a block. Their memory stays where it is when this is
/// moved. When this is dropped, it is used again.
pub struct Numbers(Memory);

enum Memory {
    /// A block, and who uses its memory next.
    Block(Vec<u8>, Sender<Vec<u8>>),
    Wire(Box<dyn HasNumbers>),
}

/// A wire that holds its numbers.
pub(super) trait HasNumbers: Send {
    fn bytes(&self) -> &[u8];
}

impl Numbers {
    pub(super) fn block(block: Vec<u8>, spare: &Sender<Vec<u8>>) -> Self {
        Self(Memory::Block(block, spare.clone()))
    }

    pub(super) fn wire(wire: impl HasNumbers + 'static) -> Self {
        Self(Memory::Wire(Box::new(wire)))
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        match &self.0 {
            Memory::Block(block, _) => block,
            Memory::Wire(wire) => wire.bytes(),
        }
    }
}

impl Drop for Numbers {
    fn drop(&mut self) {
        if let Memory::Block(block, spare) = &mut self.0 {
            // With enough spare blocks, this one is freed.
            let _ = spare.try_send(mem::take(block));
        }
    }
}

impl std::fmt::Debug for Numbers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Numbers").field("bytes", &self.bytes().len()).finish()
    }
}
