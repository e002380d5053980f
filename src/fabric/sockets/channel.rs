//! A connection to another process: of the network, or of the system itself.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use socket2::Socket;

use super::tls::{Tls, Wait};

/// A connection. Several threads may read and write.
pub(super) struct Channel {
    socket: Socket,
    /// If it is encrypted.
    tls: Option<Box<Tls>>,
}

impl From<Socket> for Channel {
    fn from(socket: Socket) -> Self {
        Self { socket, tls: None }
    }
}

impl From<TcpStream> for Channel {
    fn from(stream: TcpStream) -> Self {
        Socket::from(stream).into()
    }
}

impl Channel {
    /// The same connection, encrypted from now on, and a number that only its two ends have. Both ends do
    /// this at the same moment. `connects`: whether this end has connected to the other one.
    ///
    /// # Errors
    /// When the other end speaks no TLS, or not before the deadline.
    pub(super) fn encrypted(mut self, connects: bool, deadline: Instant) -> io::Result<(Self, [u8; 32])> {
        let (tls, session) = Tls::begin(&self.socket, connects, &|| self.set_timeouts(deadline))?;
        self.tls = Some(Box::new(tls));
        Ok((self, session))
    }

    pub(super) fn read(&self, into: &mut [u8]) -> io::Result<usize> {
        self.read_after(&|| Ok(()), into)
    }

    pub(super) fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.write_after(&|| Ok(()), bytes)
    }

    /// Calls `before` each time before it reads from the socket.
    fn read_after(&self, before: Wait<'_>, into: &mut [u8]) -> io::Result<usize> {
        match &self.tls {
            None => before().and_then(|()| (&self.socket).read(into)),
            Some(tls) => tls.read(&self.socket, into, before),
        }
    }

    /// Calls `before` each time before it writes to the socket.
    fn write_after(&self, before: Wait<'_>, bytes: &[u8]) -> io::Result<usize> {
        match &self.tls {
            None => before().and_then(|()| (&self.socket).write(bytes)),
            Some(tls) => tls.write(&self.socket, bytes, before),
        }
    }

    pub(super) fn write_pieces(&self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        match &self.tls {
            None => (&self.socket).write_vectored(pieces),
            Some(_) => {
                let first = pieces.iter().find(|piece| !piece.is_empty());
                first.map_or(Ok(0), |piece| self.write(piece))
            }
        }
    }

    /// Fills `into` before the deadline, even if the bytes come one by one.
    ///
    /// # Errors
    /// [`ErrorKind::TimedOut`] or [`ErrorKind::UnexpectedEof`]; otherwise whatever the system reports.
    pub(super) fn read_exact_before(&self, mut into: &mut [u8], deadline: Instant) -> io::Result<()> {
        while !into.is_empty() {
            match self.read_after(&|| self.set_timeouts(deadline), into) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(read) => into = &mut into[read..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Sends all these bytes, if the other process takes them before the deadline.
    ///
    /// # Errors
    /// [`ErrorKind::TimedOut`]; otherwise whatever the system reports.
    pub(super) fn write_all_before(&self, bytes: &[u8], deadline: Instant) -> io::Result<()> {
        self.write_all_after(&|| self.set_timeouts(deadline), bytes)
    }

    /// Sends all these bytes, however long the other process takes.
    ///
    /// # Errors
    /// Whatever the system reports.
    pub(super) fn write_all(&self, bytes: &[u8]) -> io::Result<()> {
        self.write_all_after(&|| Ok(()), bytes)
    }

    fn write_all_after(&self, before: Wait<'_>, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.write_after(before, bytes) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => bytes = &bytes[written..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Whether the other end, which waits, has closed the connection. A message from it can only say that it
    /// goes.
    pub(super) fn has_gone(&self) -> bool {
        let waits = self.set_timeouts(Instant::now() + Duration::from_millis(1));
        match waits.and_then(|()| self.socket.peek(&mut [MaybeUninit::uninit()])) {
            Ok(_) => true,
            Err(error) => {
                !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
            }
        }
    }

    /// The next read or write ends at the deadline.
    fn set_timeouts(&self, deadline: Instant) -> io::Result<()> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        let left = Some(left.max(Duration::from_millis(1)));
        self.socket.set_read_timeout(left)?;
        self.socket.set_write_timeout(left)
    }

    /// From now on reading and writing may take any time.
    pub(super) fn forget_deadlines(&self) -> io::Result<()> {
        self.socket.set_read_timeout(None)?;
        self.socket.set_write_timeout(None)
    }

    /// From now on a write may wait this long.
    pub(super) fn limit_writes(&self, wait: Duration) -> io::Result<()> {
        self.socket.set_write_timeout(Some(wait))
    }

    /// Ends the connection in both directions.
    pub(super) fn close(&self) {
        // If it was closed before, nothing is left to do.
        let _ = self.socket.shutdown(Shutdown::Both);
    }

    /// Where this end is.
    pub(super) fn here(&self) -> io::Result<SocketAddr> {
        let here = self.socket.local_addr()?;
        here.as_socket().ok_or_else(|| ErrorKind::AddrNotAvailable.into())
    }

    /// Where the other end is.
    pub(super) fn there(&self) -> io::Result<SocketAddr> {
        let there = self.socket.peer_addr()?;
        there.as_socket().ok_or_else(|| ErrorKind::AddrNotAvailable.into())
    }

    /// For what only the system can do.
    pub(super) fn socket(&self) -> &Socket {
        &self.socket
    }
}
