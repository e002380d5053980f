//! The side that connects.

use std::io::{self, ErrorKind};
use std::net::TcpStream;
use std::time::Instant;

use super::credentials::Gate;
use super::messages::{MAGIC, Purpose, Side, Talk};
use crate::fabric::sockets::channel::Channel;

/// The answer to a proof that was taken. The other side's proof follows.
pub(super) const TAKEN: u8 = 1;

/// The answer to any other proof.
pub(super) const NOT_TAKEN: u8 = 0;

/// Why a process was not let in.
#[derive(Debug)]
pub(in crate::fabric::sockets) enum Rebuff {
    /// Nothing listens there.
    Unreached(io::Error),
    /// The connection has failed, or there is another program.
    Failed(io::Error),
    /// The process that listens does not take the proof.
    NotTaken,
    /// What listens cannot prove that it belongs to the run.
    Impostor,
    /// This process was asked to end before it was let in.
    Interrupted,
}

impl From<io::Error> for Rebuff {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

impl From<Rebuff> for io::Error {
    fn from(rebuff: Rebuff) -> Self {
        match rebuff {
            Rebuff::Unreached(error) | Rebuff::Failed(error) => error,
            Rebuff::NotTaken => Self::other("it does not take this process for one of its run"),
            Rebuff::Impostor => Self::other("what listens there does not belong to the run"),
            Rebuff::Interrupted => Self::other("this process was asked to end"),
        }
    }
}

/// Proves to a process that listens that this one belongs to the run, and lets it prove the same.
pub(in crate::fabric::sockets) fn knock(
    stream: TcpStream,
    gate: &Gate,
    (process, purpose): (u32, Purpose),
    deadline: Instant,
) -> Result<(Channel, Talk), Rebuff> {
    let key = gate.key(purpose).ok_or(ErrorKind::NotConnected).map_err(io::Error::from)?;
    let channel = Channel::from(stream);
    let ask = Talk::ask(gate.process, purpose, gate.tls)?;
    channel.write_all_before(&ask, deadline)?;
    let mut answer = [0; Talk::ANSWER];
    // First byte by byte, so that a short answer of another program is not taken for silence.
    for (place, expected) in answer.iter_mut().zip(MAGIC) {
        channel.read_exact_before(std::slice::from_mut(place), deadline)?;
        if *place != expected {
            return Err(io::Error::from(ErrorKind::InvalidData).into());
        }
    }
    channel.read_exact_before(&mut answer[MAGIC.len()..], deadline)?;
    let talk = Talk::new(ask, answer).ok_or(ErrorKind::InvalidData).map_err(io::Error::from)?;
    if talk.process(Side::Listens) != process {
        return Err(Rebuff::Impostor);
    }
    channel.write_all_before(&talk.proof(key, Side::Connects), deadline)?;
    let mut verdict = [NOT_TAKEN];
    channel.read_exact_before(&mut verdict, deadline)?;
    if verdict != [TAKEN] {
        return Err(Rebuff::NotTaken);
    }
    let mut proof = [0; Talk::PROOF];
    channel.read_exact_before(&mut proof, deadline)?;
    match talk.is_proof(&proof, key, Side::Listens) {
        true => Ok((channel, talk)),
        false => Err(Rebuff::Impostor),
    }
}
