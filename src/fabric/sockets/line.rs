//! The two sockets to another process, as a line.

use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crossbeam_channel::Sender;
use socket2::{SockRef, Socket, TcpKeepalive};

use super::shared::Shared;
use crate::fabric::processes::{BUFFER, Head, Line};

/// The question that one process sends on the second connection, and the answer.
const ASK: [u8; 1] = [b'?'];
const ANSWER: [u8; 1] = [b'!'];

/// The connections to another process.
pub(super) struct Sockets {
    data: Socket,
    /// For large blocks, between processes of one machine.
    shared: Option<Shared>,
    /// Its end shows that the other machine has gone.
    watch: TcpStream,
    /// How many questions the other process has answered.
    answers: AtomicU64,
}

impl Sockets {
    /// `data` is for frames, `watch` shows whether the other machine is there. `silence`: how long that may
    /// be silent.
    pub(super) fn new(
        data: Socket,
        shared: Option<Shared>,
        watch: TcpStream,
        silence: Duration,
    ) -> io::Result<Self> {
        probe(&watch, silence)?;
        Ok(Self {
            data,
            shared,
            watch,
            answers: AtomicU64::new(0),
        })
    }

    /// The receiving end.
    pub(super) fn incoming(&self) -> io::Result<Socket> {
        self.data.try_clone()
    }

    /// Waits until the second connection ends, and closes both if the other machine has gone.
    pub(super) fn watch(&self) {
        let (mut line, mut byte) = (&self.watch, [0]);
        loop {
            match line.read(&mut byte) {
                // The other process has ended. Its last frames are read first.
                Ok(0) => return,
                // If the answer cannot be sent, the next read fails.
                Ok(_) if byte == ASK => drop(line.write(&ANSWER)),
                Ok(_) => drop(self.answers.fetch_add(1, Ordering::Relaxed)),
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return,
                Err(_) => return self.close(),
            }
        }
    }
}

impl Line for Sockets {
    fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        (&self.data).write(bytes)
    }

    fn send_pieces(&self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        (&self.data).write_vectored(pieces)
    }

    fn post(&self, mut head: Head, block: Vec<u8>, spare: &Sender<Vec<u8>>) -> io::Result<Option<Vec<u8>>> {
        let shared = self.shared.as_ref().filter(|_| block.len() > BUFFER);
        let Some(numbers) = shared.and_then(|shared| shared.put(&block)) else {
            return Ok(Some(block));
        };
        head.numbers = numbers;
        (&self.data).write_all(&head.to_bytes())?;
        // With enough spare blocks, this one is freed.
        let _ = spare.try_send(block);
        Ok(None)
    }

    fn take(&self, place: u64, length: usize, into: &mut Vec<u8>) -> io::Result<()> {
        let shared = self.shared.as_ref().ok_or(io::ErrorKind::InvalidData)?;
        shared.take(place, length, into)
    }

    fn limit(&self, wait: Duration) -> io::Result<()> {
        self.data.set_write_timeout(Some(wait))
    }

    fn close(&self) {
        // If it was closed before, nothing is left to do.
        let _ = self.data.shutdown(Shutdown::Both);
        let _ = self.watch.shutdown(Shutdown::Both);
    }

    fn ask(&self) {
        // If the process has gone, there is no answer.
        let _ = (&self.watch).write(&ASK);
    }

    fn answers(&self) -> u64 {
        self.answers.load(Ordering::Relaxed)
    }
}

/// Makes the system ask whether the other machine is there, and end the connection after this much silence.
///
/// The system only asks on an idle connection, so nothing is ever written on this one. A stopped process
/// reads nothing, so data for it waits on the other connection as long as necessary; but its machine answers
/// here. A machine that has gone answers nothing.
fn probe(stream: &TcpStream, silence: Duration) -> io::Result<()> {
    // No system takes longer times, and so many probes.
    let allowed = |time: Duration| time.clamp(Duration::from_secs(1), Duration::from_secs(32_767));
    let (quiet, between) = (allowed(silence / 3), allowed(silence / 6));
    let probes = silence
        .saturating_sub(quiet)
        .div_duration_f64(between)
        .round()
        .clamp(1.0, 127.0);
    let keepalive = TcpKeepalive::new()
        .with_time(quiet)
        .with_interval(between)
        .with_retries(probes as u32);
    SockRef::from(stream).set_tcp_keepalive(&keepalive)
}
