//! The connections between all pairs of processes: the higher number connects to the lower one, twice.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Instant;

use super::message::{Message, left, receive, send};
use super::{Known, LINES, Pair};
use crate::error::{FabricError, Result};

/// The connections to the other processes made so far.
pub(super) struct Table {
    /// By process.
    lines: Vec<[Option<TcpStream>; LINES]>,
    process: u32,
    /// The address at which this process reaches process 0.
    first: SocketAddr,
}

impl Table {
    pub(super) fn new(process: u32, processes: u32, first: SocketAddr) -> Self {
        let lines = (0..processes).map(|_| [None, None]).collect();
        Self {
            lines,
            process,
            first,
        }
    }

    /// Connects to all processes with lower numbers.
    pub(super) fn reach_lower(&mut self, known: &Known, deadline: Instant) -> Result<()> {
        for peer in 0..self.process {
            for line in 0..LINES {
                let address = match peer {
                    0 => self.first,
                    _ => known.addresses[peer as usize],
                };
                let (process, pass) = (self.process, known.pass);
                let reached = reach(address, &Message::Peer { process, pass, line }, deadline);
                let source = match reached {
                    Ok(stream) => {
                        self.lines[peer as usize][line] = Some(stream);
                        continue;
                    }
                    Err(error) => Arc::new(error),
                };
                return Err(FabricError::CannotReachPeer {
                    process: peer,
                    address,
                    source,
                }
                .into());
            }
        }
        Ok(())
    }

    /// Takes a connection from a process with a higher number. Any other connection is closed.
    pub(super) fn take(&mut self, stream: TcpStream, message: &Message, pass: u64) {
        if let Message::Peer {
            process,
            pass: shown,
            line,
        } = *message
            && shown == pass
            && process > self.process
            && let Some(lines) = self.lines.get_mut(process as usize)
            && let Some(place) = lines.get_mut(line)
            && place.is_none()
        {
            *place = Some(stream);
        }
    }

    pub(super) fn process(&self) -> u32 {
        self.process
    }

    /// The processes to which a connection is missing.
    pub(super) fn missing(&self) -> Vec<u32> {
        let all = (0..).zip(&self.lines);
        let missing =
            all.filter(|(process, lines)| *process != self.process && lines.iter().any(Option::is_none));
        missing.map(|(process, _)| process).collect()
    }

    /// The connections, when none is missing.
    pub(super) fn lines(self) -> Vec<Option<Pair>> {
        let whole = |[data, watch]: [Option<TcpStream>; LINES]| {
            Some(Pair {
                data: data?,
                watch: watch?,
            })
        };
        self.lines.into_iter().map(whole).collect()
    }
}

/// Connects to a process with a lower number and tells it who is connecting.
fn reach(address: SocketAddr, who: &Message, deadline: Instant) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, left(deadline))?;
    match receive(&stream, deadline)? {
        Message::Challenge(_) => send(&stream, who).map(|()| stream),
        _ => Err(ErrorKind::InvalidData.into()),
    }
}
