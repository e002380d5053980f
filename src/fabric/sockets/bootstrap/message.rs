//! The messages of processes until they are connected.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The beginning of every message. Anything else comes from another program.
const MAGIC: [u8; 8] = *b"PIPEWRT2";

/// The longest message. A config is much shorter.
const LONGEST: u64 = 1 << 20;

/// One message.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Message {
    /// The first message of a process that listens: a number that was never used before.
    Challenge(u64),
    /// To process 0: who is connecting.
    Hello(Hello),
    /// From process 0, when all have connected: the addresses of all processes, and a secret that shows who
    /// belongs to the run.
    Welcome { addresses: Vec<SocketAddr>, pass: u64 },
    /// From one process to another with a lower number: this is one of the connections between the two.
    Peer { process: u32, pass: u64, line: usize },
    /// To process 0: this process is connected with all others.
    Connected,
    /// To process 0: why this process cannot take part.
    Failed(String),
    /// From process 0: all processes are connected.
    Ready,
    /// From process 0: why there is no run.
    Refused(String),
}

/// Who is connecting.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Hello {
    pub(super) process: u32,
    pub(super) processes: u32,
    /// Where it listens for processes with higher numbers.
    pub(super) address: SocketAddr,
    /// The version of the engine.
    pub(super) version: String,
    /// What must be equal in all processes.
    pub(super) program: String,
    /// Proves that it runs the same file as process 0, and that this message is not an old one.
    pub(super) proof: [u8; 32],
}

impl Hello {
    /// The answer to this challenge. Only a process that runs this program file can compute it.
    pub(super) fn proof(&self, binary: &[u8; 32], challenge: u64) -> [u8; 32] {
        let said = (challenge, self.process, self.processes, self.address);
        let said = Sha256::digest(format!("{said:?} {} {}", self.version, self.program));
        let inner = Sha256::new().chain_update(binary).chain_update(said).finalize();
        Sha256::new()
            .chain_update(binary)
            .chain_update(inner)
            .finalize()
            .into()
    }
}

/// Sends a message.
pub(super) fn send(mut to: &TcpStream, message: &Message) -> io::Result<()> {
    let text = serde_json::to_vec(message)?;
    let mut bytes = MAGIC.to_vec();
    bytes.extend((text.len() as u64).to_le_bytes());
    bytes.extend(text);
    to.write_all(&bytes)
}

/// Receives a message before the deadline, even if it comes slowly.
///
/// # Errors
/// [`ErrorKind::InvalidData`] for anything else than a message; otherwise whatever the system reports.
pub(super) fn receive(from: &TcpStream, deadline: Instant) -> io::Result<Message> {
    let mut from = Timed { from, deadline };
    let mut number = [0; 8];
    // First byte by byte, so that a short answer of another program is not taken for silence.
    for expected in MAGIC {
        from.read_exact(&mut number[..1])?;
        if number[0] != expected {
            return Err(ErrorKind::InvalidData.into());
        }
    }
    from.read_exact(&mut number)?;
    let length = u64::from_le_bytes(number);
    if length > LONGEST {
        return Err(ErrorKind::InvalidData.into());
    }
    // Memory is allocated only as bytes come.
    let mut text = Vec::new();
    if (&mut from).take(length).read_to_end(&mut text)? as u64 != length {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    from.from.set_read_timeout(None)?;
    serde_json::from_slice(&text).map_err(|_| ErrorKind::InvalidData.into())
}

/// A connection that can be read until the deadline.
struct Timed<'a> {
    from: &'a TcpStream,
    deadline: Instant,
}

impl Read for Timed<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if Instant::now() >= self.deadline {
            return Err(ErrorKind::TimedOut.into());
        }
        self.from.set_read_timeout(Some(left(self.deadline)))?;
        self.from.read(into)
    }
}

/// The time left until the deadline. It is never zero.
pub(super) fn left(deadline: Instant) -> Duration {
    deadline
        .saturating_duration_since(Instant::now())
        .max(Duration::from_millis(1))
}
