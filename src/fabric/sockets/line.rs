//! The two sockets to another process, as a line.

use std::io::{self, ErrorKind, IoSlice, Read};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use socket2::TcpKeepalive;

use super::channel::Channel;
use super::near::Shared;
use crate::error::ProcessLoss;
use crate::fabric::processes::{Aside, BUFFER, Line};
use crate::system::{end_when_silent, is_taken, silent_for};

/// The connections to another process.
pub(super) struct Sockets {
    /// The other process.
    process: u32,
    data: Arc<Channel>,
    /// For large blocks, between processes of one machine.
    shared: Option<Shared>,
    /// Its end shows that the other machine has gone.
    watch: Arc<Channel>,
    /// How long the other machine may be silent.
    silence: Duration,
    /// Whether the other machine has gone.
    is_silent: AtomicBool,
    /// For one word at a time on `watch`.
    speaks: Mutex<()>,
    /// What takes the words.
    aside: Arc<Aside>,
}

impl Sockets {
    /// `data` is for frames, `watch` shows whether the other machine is there. `silence`: how long that may
    /// be silent.
    pub(super) fn new(
        process: u32,
        data: Arc<Channel>,
        shared: Option<Shared>,
        watch: Arc<Channel>,
        silence: Duration,
        aside: Arc<Aside>,
    ) -> io::Result<Self> {
        data.forget_deadlines()?;
        watch.forget_deadlines()?;
        let silence = probe(&watch, silence)?;
        Ok(Self {
            process,
            data,
            shared,
            watch,
            silence,
            is_silent: AtomicBool::new(false),
            speaks: Mutex::default(),
            aside,
        })
    }

    /// Waits until the second connection ends, and closes both if the other machine has gone.
    pub(super) fn watch(&self) {
        loop {
            match self.hear() {
                Ok(true) => {}
                // The other process has ended. Its last frames are read first.
                Ok(false) => return,
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return,
                Err(error) => {
                    self.is_silent.fetch_or(is_silence(&error), Ordering::Release);
                    return self.close();
                }
            }
        }
    }

    /// Reads from the second connection, for as long as the other machine is there.
    fn listen(&self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.watch.read(into) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if silent_for(self.watch.socket()).is_some_and(|time| time >= self.silence) {
                        return Err(ErrorKind::TimedOut.into());
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => return read,
            }
        }
    }

    /// Fills `into` from the second connection.
    fn listen_all(&self, mut into: &mut [u8]) -> io::Result<()> {
        while !into.is_empty() {
            match self.listen(into)? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                read => into = &mut into[read..],
            }
        }
        Ok(())
    }

    /// Takes a word from the second connection: its length and its bytes. Returns false at its end.
    fn hear(&self) -> io::Result<bool> {
        let mut length = [0; 4];
        let read = self.listen(&mut length)?;
        if read == 0 {
            return Ok(false);
        }
        self.listen_all(&mut length[read..])?;
        let length = u32::from_le_bytes(length) as usize;
        if length > Aside::LONGEST {
            return Err(ErrorKind::InvalidData.into());
        }
        let mut word = vec![0; length];
        self.listen_all(&mut word)?;
        if let Some(answer) = self.aside.hear(self.process, &word)? {
            self.say(&answer);
        }
        Ok(true)
    }
}

/// The receiving end.
pub(super) struct Incoming(pub(super) Arc<Sockets>);

impl Read for Incoming {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.0.data.read(into);
        if read.as_ref().is_err_and(is_silence) {
            self.0.is_silent.store(true, Ordering::Release);
        }
        read
    }
}

impl Line for Sockets {
    fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        self.data.write(bytes)
    }

    fn send_pieces(&self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        self.data.write_pieces(pieces)
    }

    fn put(&self, block: &[u8]) -> Option<u64> {
        let shared = self.shared.as_ref().filter(|_| block.len() > BUFFER)?;
        shared.put(block)
    }

    fn take(&self, place: u64, length: usize, into: &mut Vec<u8>) -> io::Result<()> {
        let shared = self.shared.as_ref().ok_or(ErrorKind::InvalidData)?;
        shared.take(place, length, into)
    }

    fn limit(&self, wait: Duration) -> io::Result<()> {
        self.data.limit_writes(wait)
    }

    fn close(&self) {
        self.data.close();
        self.watch.close();
    }

    fn loss(&self) -> ProcessLoss {
        match self.is_silent.load(Ordering::Acquire) {
            true => ProcessLoss::Silent,
            false => ProcessLoss::Closed,
        }
    }

    fn say(&self, word: &[u8]) {
        let _alone = self.speaks.lock().unwrap_or_else(PoisonError::into_inner);
        // If the process has gone, nobody hears it.
        let _ = self.watch.write_all(&[&(word.len() as u32).to_le_bytes()[..], word].concat());
    }

    fn machine_answers(&self) -> Option<bool> {
        is_taken(self.watch.socket())
    }
}

/// Whether the system has given a connection up because the other machine does not answer.
fn is_silence(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable)
}

/// Makes the system ask whether the other machine is there, and end the connection after this much silence.
/// Returns how long it may be silent: systems count in seconds.
///
/// The system only asks on an idle connection, so only a few words are said on this one. A stopped process
/// reads nothing, so data for it waits on the other connection as long as necessary; but its machine answers
/// here. A machine that has gone answers nothing. While something is on the way, such as the end of a proof
/// or a question, the system does not ask, but counts how long nobody takes it, from when it was sent. So on
/// Linux a read here ends between two of the system's questions, to look when the machine was last heard.
pub(super) fn probe(watch: &Channel, silence: Duration) -> io::Result<Duration> {
    // No system takes longer times, or more probes.
    let allowed = |time: Duration| time.clamp(Duration::from_secs(1), Duration::from_secs(32_767));
    let (quiet, between) = (allowed(silence / 3), allowed(silence / 6));
    let probes = silence.saturating_sub(quiet).div_duration_f64(between).round().clamp(1.0, 127.0) as u32;
    let keepalive = TcpKeepalive::new().with_time(quiet).with_interval(between).with_retries(probes);
    let longest = quiet + between * probes;
    end_when_silent(watch.socket(), longest, between)?;
    watch.socket().set_tcp_keepalive(&keepalive)?;
    Ok(longest)
}
