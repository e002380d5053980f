//! What processes say to each other until they are connected.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// What every message begins with. Whatever else comes is of another program.
const MAGIC: [u8; 8] = *b"PIPEWRT1";

/// The longest message.
const LONGEST: u64 = 1 << 24;

/// One message.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Message {
    /// To process 0: who has come.
    Hello(Hello),
    /// From process 0, when all have come: where each process listens, and what shows that one belongs to them.
    Welcome { addresses: Vec<SocketAddr>, pass: u64 },
    /// From process 0: why there will be no run.
    Refused(String),
    /// From one process to another of a lower number.
    Link { process: u32, pass: u64 },
}

/// Who has come.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Hello {
    pub(super) process: u32,
    pub(super) processes: u32,
    /// Where it listens for those of higher numbers.
    pub(super) address: SocketAddr,
    /// The version of the engine.
    pub(super) version: String,
    /// A hash of the program's file.
    pub(super) binary: u64,
    /// What all have to have in common.
    pub(super) program: String,
}

/// Sends a message.
pub(super) fn send(mut to: &TcpStream, message: &Message) -> io::Result<()> {
    let text = serde_json::to_vec(message)?;
    let mut bytes = MAGIC.to_vec();
    bytes.extend((text.len() as u64).to_le_bytes());
    bytes.extend(text);
    to.write_all(&bytes)
}

/// Receives a message before the deadline.
///
/// # Errors
/// [`ErrorKind::InvalidData`] for what is none, else what the system reports.
pub(super) fn receive(mut from: &TcpStream, deadline: Instant) -> io::Result<Message> {
    let mut bytes = [0; 16];
    // A byte at a time at first, so that a short answer of another program is told from silence.
    for (index, &expected) in MAGIC.iter().enumerate() {
        limit(from, deadline)?;
        from.read_exact(&mut bytes[index..=index])?;
        if bytes[index] != expected {
            return Err(ErrorKind::InvalidData.into());
        }
    }
    from.read_exact(&mut bytes[8..])?;
    let length = u64::from_le_bytes(bytes.as_chunks().0[1]);
    if length > LONGEST {
        return Err(ErrorKind::InvalidData.into());
    }
    let mut text = vec![0; length as usize];
    from.read_exact(&mut text)?;
    from.set_read_timeout(None)?;
    serde_json::from_slice(&text).map_err(|_| ErrorKind::InvalidData.into())
}

/// What is left until the deadline; a moment at least.
pub(super) fn left(deadline: Instant) -> Duration {
    deadline
        .saturating_duration_since(Instant::now())
        .max(Duration::from_millis(1))
}

fn limit(stream: &TcpStream, deadline: Instant) -> io::Result<()> {
    stream.set_read_timeout(Some(left(deadline)))
}
