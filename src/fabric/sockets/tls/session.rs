//! A session over a socket. One thread may read while another writes, and no thread holds the session while
//! it waits for the network: two processes that both wait to write would else keep both from reading.

use std::io::{self, ErrorKind, Read, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustls::Connection;
use socket2::Socket;

use super::keys::session;

/// The most bytes that are encrypted at once. Meanwhile nothing is decrypted.
const PIECE: usize = 1 << 16;

/// A session.
pub(in crate::fabric::sockets) struct Tls {
    session: Mutex<Connection>,
    /// For the thread that reads.
    came: Mutex<Came>,
    /// Encrypted bytes, for the thread that writes.
    goes: Mutex<Vec<u8>>,
}

/// Encrypted bytes that have come, and which of them have been decrypted.
struct Came {
    bytes: Box<[u8; PIECE]>,
    start: usize,
    end: usize,
}

/// What is called before each read and each write of a socket: it says how long these may take.
pub(in crate::fabric::sockets) type Wait<'a> = &'a dyn Fn() -> io::Result<()>;

impl Tls {
    /// Begins a session. Also returns a number that only its two ends have (RFC 9266). Both sides do this at
    /// the same moment. `before` is called before each read and each write.
    pub(in crate::fabric::sockets) fn begin(
        socket: &Socket,
        connects: bool,
        before: Wait<'_>,
    ) -> io::Result<(Self, [u8; 32])> {
        let tls = Self {
            session: Mutex::new(session(connects)?),
            came: Mutex::new(Came { bytes: Box::new([0; PIECE]), start: 0, end: 0 }),
            goes: Mutex::default(),
        };
        loop {
            tls.write(socket, &[], before)?;
            if !locked(&tls.session).is_handshaking() {
                break;
            }
            let mut came = locked(&tls.came);
            if came.is_empty() {
                before()?;
                if came.receive(socket)? == 0 {
                    return Err(ErrorKind::UnexpectedEof.into());
                }
            }
            tls.decrypt(&mut came)?;
        }
        let exported =
            locked(&tls.session).export_keying_material([0; 32], b"EXPORTER-Channel-Binding", None);
        Ok((tls, exported.map_err(io::Error::other)?))
    }

    /// Reads as [`Read::read`].
    pub(in crate::fabric::sockets) fn read(
        &self,
        socket: &Socket,
        into: &mut [u8],
        before: Wait<'_>,
    ) -> io::Result<usize> {
        let mut came = locked(&self.came);
        loop {
            match locked(&self.session).reader().read(into) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // The other end may have ended without a word.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(0),
                read => return read,
            }
            if came.is_empty() {
                before()?;
                if came.receive(socket)? == 0 {
                    return Ok(0);
                }
            }
            self.decrypt(&mut came)?;
        }
    }

    /// Decrypts some of what has come, until there is something to read.
    fn decrypt(&self, came: &mut Came) -> io::Result<()> {
        let mut session = locked(&self.session);
        while !came.is_empty() {
            came.start += session.read_tls(&mut &came.bytes[came.start..came.end])?;
            let state = session.process_new_packets();
            let state = state.map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
            if state.plaintext_bytes_to_read() > 0 {
                break;
            }
        }
        Ok(())
    }

    /// Writes as [`Write::write`], and also what the session itself has to say.
    pub(in crate::fabric::sockets) fn write(
        &self,
        socket: &Socket,
        bytes: &[u8],
        before: Wait<'_>,
    ) -> io::Result<usize> {
        let mut goes = locked(&self.goes);
        let taken = {
            let mut session = locked(&self.session);
            let taken = session.writer().write(&bytes[..bytes.len().min(PIECE)])?;
            while session.wants_write() {
                session.write_tls(&mut *goes)?;
            }
            taken
        };
        let mut sent = 0;
        while sent < goes.len() {
            before()?;
            match (&*socket).write(&goes[sent..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(more) => sent += more,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        goes.clear();
        Ok(taken)
    }
}

impl Came {
    fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Waits for more. All that came before was decrypted.
    fn receive(&mut self, mut socket: &Socket) -> io::Result<usize> {
        let more = socket.read(&mut self.bytes[..])?;
        (self.start, self.end) = (0, more);
        Ok(more)
    }
}

/// If a thread panicked with it, its rank has ended, and so has the run.
fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
