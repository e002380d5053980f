//! The messages of processes that have proved who they are, until all are connected.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::fabric::processes::Alike;
use crate::fabric::sockets::channel::Channel;

/// The longest message. A config is much shorter.
const LONGEST: u64 = 1 << 20;

/// One message.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Message {
    /// To process 0: who joins the run.
    Hello(Hello),
    /// To process 0: who waits beside the run.
    Spare(Comer),
    /// From process 0, when all have come: the addresses of all processes, the numbers with which they were
    /// started, and the number of this run, from which all make its key. `first` is the number that the run
    /// had when it began: it is another one if processes were lost since, and the run goes on.
    Welcome { addresses: Vec<SocketAddr>, numbers: Vec<u32>, run: [u8; 32], first: [u8; 32] },
    /// To process 0: this process is connected with all others.
    Connected,
    /// To process 0: why this process cannot take part.
    Failed(String),
    /// To process 0: this process was asked to end. So nobody need wait any more.
    Interrupted,
    /// From process 0: all processes are connected.
    Ready,
    /// To a spare, or to a process that comes while the run goes on: process 0 knows it.
    Known,
    /// To one of the spares: it takes the place of process 0 of `processes` when that is lost.
    Heir { processes: u32 },
    /// To a spare: it takes the place of process `process` of `processes`.
    Take { process: u32, processes: u32 },
    /// To a spare: the run has ended.
    Over,
    /// From process 0: why there is no run.
    Refused(String),
}

/// The process that joins the run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Hello {
    pub(super) processes: u32,
    /// Where it listens for processes with higher numbers.
    pub(super) address: SocketAddr,
    pub(super) alike: Alike,
    /// The number of the run that it was in, and goes on with.
    pub(super) was_in: Option<[u8; 32]>,
    /// The processes without which that run went on.
    #[serde(default)]
    pub(super) absent: Vec<u32>,
}

/// A spare.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Comer {
    /// What it would join with.
    pub(super) alike: Alike,
    /// Whether one of process 0's addresses is on its machine.
    pub(super) can_lead: bool,
}

/// Sends a message before the deadline.
///
/// # Errors
/// Whatever the system reports.
pub(super) fn send(to: &Channel, message: &Message, deadline: Instant) -> io::Result<()> {
    let text = serde_json::to_vec(message)?;
    let length = (text.len() as u64).to_le_bytes();
    to.write_all_before(&[&length[..], &text].concat(), deadline)
}

/// Receives a message before the deadline, even if it comes slowly.
///
/// # Errors
/// [`ErrorKind::InvalidData`] for anything else than a message; otherwise whatever the system reports.
pub(super) fn receive(from: &Channel, deadline: Instant) -> io::Result<Message> {
    let mut length = [0; 8];
    from.read_exact_before(&mut length, deadline)?;
    let length = u64::from_le_bytes(length);
    if length > LONGEST {
        return Err(ErrorKind::InvalidData.into());
    }
    let mut text = vec![0; length as usize];
    from.read_exact_before(&mut text, deadline)?;
    serde_json::from_slice(&text).map_err(|_| ErrorKind::InvalidData.into())
}
