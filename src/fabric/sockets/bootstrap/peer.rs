//! The connections between all pairs of processes: the higher number connects to the lower one, twice.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Instant;

use super::acceptor::Arrival;
use super::reach::reach;
use super::{Known, Pair};
use crate::error::{Error, FabricError, Problem, RestartError, Result};
use crate::fabric::sockets::channel::Channel;
use crate::fabric::sockets::handshake::{Gate, Purpose, Rebuff};
use crate::interrupt::Interrupt;

/// What the connections between two processes are for.
const LINES: [Purpose; 2] = [Purpose::Data, Purpose::Watch];

/// The connections to the other processes made so far.
pub(super) struct Table {
    /// By process.
    lines: Vec<[Option<Arc<Channel>>; LINES.len()]>,
    /// By process: the number with which it was started. They are in order.
    numbers: Vec<u32>,
    /// This process's number.
    own: u32,
    /// The address at which this process reaches process 0.
    first: SocketAddr,
}

impl Table {
    pub(super) fn new(own: u32, numbers: Vec<u32>, first: SocketAddr) -> Self {
        let lines = numbers.iter().map(|_| [None, None]).collect();
        Self { lines, numbers, own, first }
    }

    /// Connects to all processes with lower numbers. It ends with [`RestartError::WaitEnded`] when this
    /// process is asked to end.
    pub(super) fn reach_lower(
        &mut self,
        known: &Known,
        (gate, interrupt): (&Gate, &Interrupt),
        deadline: Instant,
    ) -> Result<()> {
        let lower = self.numbers.iter().copied().take_while(|number| *number < self.own);
        for (place, peer) in lower.enumerate() {
            let address = match peer {
                0 => self.first,
                _ => known.addresses[place],
            };
            for (line, purpose) in LINES.into_iter().enumerate() {
                let connect = |time| TcpStream::connect_timeout(&address, time);
                let reached = reach(
                    (connect, |_: &_| true),
                    (gate, Some(interrupt)),
                    (peer, purpose),
                    (None, deadline),
                );
                let (channel, _) = reached.map_err(|rebuff| match rebuff {
                    Rebuff::Interrupted => Error::from(RestartError::WaitEnded { process: self.own }),
                    rebuff => {
                        let error = io::Error::from(rebuff);
                        let text = format!(
                            "cannot reach process {peer} at {address}: {error}; every process has to be able \
                             to connect to those of lower RANK"
                        );
                        FabricError::Lost(Problem::because(text, error)).into()
                    }
                })?;
                self.lines[place][line] = Some(Arc::new(channel));
            }
        }
        Ok(())
    }

    /// Takes a connection from a process with a higher number. Any other connection is closed.
    pub(super) fn take(&mut self, arrival: Arrival) {
        let line = LINES.iter().position(|purpose| *purpose == arrival.purpose);
        let place = self.numbers.iter().position(|number| *number == arrival.process);
        if let (Some(line), Some(place)) = (line, place)
            && arrival.process > self.own
            && self.lines[place][line].is_none()
        {
            self.lines[place][line] = Some(arrival.channel);
        }
    }

    /// The processes to which a connection is missing.
    pub(super) fn missing(&self) -> Vec<u32> {
        let all = self.numbers.iter().copied().zip(&self.lines);
        let missing = all.filter(|(number, lines)| *number != self.own && lines.iter().any(Option::is_none));
        missing.map(|(number, _)| number).collect()
    }

    /// The connections, when none is missing.
    pub(super) fn lines(self) -> Vec<Option<Pair>> {
        let whole =
            |[data, watch]: [Option<Arc<Channel>>; LINES.len()]| Some(Pair { data: data?, watch: watch? });
        self.lines.into_iter().map(whole).collect()
    }
}
