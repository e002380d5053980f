//! A wire's numbers on a line. They are always as many bytes as the frame's head says.
//!
//! The code that writes and reads a wire may be the user's. It may fail, panic, or write another number of
//! bytes than it has announced. Then the wire has failed, but the connection continues with the next frame.

use std::any::Any;
use std::io::{self, BufWriter, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};

use pipewright_stages::Tensor;

use super::line::{HasNumbers, Outlet};
use crate::error::panic_message;
use crate::fabric::wire::{TensorForm, WireFrame, described_tensor, room_for};

/// Up to this many bytes, a size is believed before the bytes come.
const BELIEVED: u64 = 1 << 20;

/// Takes the numbers that a wire writes.
pub(super) struct Outgoing<'a> {
    stream: &'a mut BufWriter<Outlet>,
    left: u64,
    /// Why the connection cannot be written.
    lost: Option<io::Error>,
}

impl<'a> Outgoing<'a> {
    /// Writes the `bytes` bytes of a wire's numbers, with zeros for those that the wire does not write.
    /// Returns why the wire failed, if it did.
    ///
    /// # Errors
    /// When the connection has failed.
    pub(super) fn write<W: WireFrame>(
        stream: &'a mut BufWriter<Outlet>,
        bytes: u64,
        wire: &W,
    ) -> io::Result<io::Result<()>> {
        let mut out = Self { stream, left: bytes, lost: None };
        let written = guarded(|| wire.write(&mut out));
        if let Some(lost) = out.lost {
            return Err(lost);
        }
        let left = out.left;
        io::copy(&mut io::repeat(0).take(left), out.stream)?;
        Ok(written.and_then(|()| match left {
            0 => Ok(()),
            left => {
                Err(io::Error::other(format!("it wrote {} bytes, but had announced {bytes}", bytes - left)))
            }
        }))
    }
}

impl Write for Outgoing<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() as u64 > self.left {
            return Err(io::Error::other("it writes more bytes than it had announced"));
        }
        match self.stream.write(bytes) {
            Ok(written) => {
                self.left -= written as u64;
                Ok(written)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Err(error),
            Err(error) => {
                let kind = error.kind();
                self.lost = Some(error);
                Err(kind.into())
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Gives a wire its numbers.
pub(super) struct Incoming<'a> {
    stream: &'a mut dyn Read,
    left: u64,
    /// Why the connection cannot be read.
    lost: Option<io::Error>,
}

impl Incoming<'_> {
    /// Makes a wire from its description and the next `bytes` bytes of numbers. Returns why the wire failed,
    /// if it did.
    ///
    /// A frame may claim any size. So a wire that is much larger than the `largest` so far is made only after
    /// its numbers have come.
    ///
    /// # Errors
    /// When the connection has failed.
    pub(super) fn read<W: WireFrame>(
        stream: &mut dyn Read,
        description: &[u8],
        bytes: u64,
        largest: &mut u64,
    ) -> io::Result<io::Result<W>> {
        let read = if bytes > BELIEVED.max(largest.saturating_mul(2)) {
            let mut numbers = Vec::new();
            read(stream, bytes, &mut numbers)?;
            guarded(|| W::read(description, bytes, &mut &numbers[..]))
        } else {
            let mut incoming = Incoming { stream: &mut *stream, left: bytes, lost: None };
            let read = guarded(|| W::read(description, bytes, &mut incoming));
            if let Some(lost) = incoming.lost {
                return Err(lost);
            }
            let left = incoming.left;
            skip(stream, left)?;
            read
        };
        *largest = bytes.max(*largest);
        Ok(read)
    }
}

impl Read for Incoming<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(into.len());
        if most == 0 {
            return Ok(0);
        }
        match self.stream.read(&mut into[..most]) {
            Ok(0) => {
                self.lost = Some(io::ErrorKind::UnexpectedEof.into());
                Ok(0)
            }
            Ok(read) => {
                self.left -= read as u64;
                Ok(read)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Err(error),
            Err(error) => {
                let kind = error.kind();
                self.lost = Some(error);
                Err(kind.into())
            }
        }
    }
}

/// Reads `length` bytes. They go straight into memory that is there. Memory for many is allocated as they
/// come, so a wrong length costs nothing.
pub(super) fn read(stream: &mut dyn Read, length: u64, into: &mut Vec<u8>) -> io::Result<()> {
    if length <= BELIEVED.max(into.capacity() as u64) {
        // Only what is longer than before is filled with zeros.
        into.resize(length as usize, 0);
        return stream.read_exact(into);
    }
    into.clear();
    match stream.take(length).read_to_end(into)? as u64 {
        read if read == length => Ok(()),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

fn skip(stream: &mut dyn Read, length: u64) -> io::Result<()> {
    match io::copy(&mut stream.take(length), &mut io::sink())? {
        skipped if skipped == length => Ok(()),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Runs the user's code. A panic becomes an error.
fn guarded<T>(act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    catch_unwind(AssertUnwindSafe(act)).unwrap_or_else(|panic| Err(panicked(panic.as_ref())))
}

/// A panic as an error.
pub(super) fn panicked(panic: &(dyn Any + Send)) -> io::Error {
    io::Error::other(format!("it panicked: {}", panic_message(panic)))
}

/// What a reader has given room for.
pub(super) enum Body<W> {
    Block(Vec<u8>),
    Wire(Tensor, TensorForm<W>),
}

impl<W: WireFrame> Body<W> {
    /// Room for a wire with this description and `length` bytes. `None` if it is not a tensor, or a tensor
    /// with another number of bytes.
    pub(super) fn wire(description: &[u8], length: usize) -> Option<Self> {
        let form = W::as_tensor()?;
        let (shape, dtype) = described_tensor(description)?;
        let needed = dtype.bytes() * shape.dims().iter().product::<usize>();
        (needed == length).then(|| Self::Wire(room_for(&shape, dtype), form))
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Block(block) => block,
            Self::Wire(tensor, _) => tensor.as_bytes_mut(),
        }
    }
}

/// A wire that is a tensor on the host.
pub(super) struct TensorWire<W> {
    pub(super) wire: W,
    pub(super) form: TensorForm<W>,
}

impl<W: WireFrame> HasNumbers for TensorWire<W> {
    fn bytes(&self) -> &[u8] {
        (self.form.tensor)(&self.wire).as_bytes()
    }
}
