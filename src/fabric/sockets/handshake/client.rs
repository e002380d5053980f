//! The side that connects.

use std::io::{self, ErrorKind};
use std::net::TcpStream;
use std::time::Instant;

use super::binding::secured;
use super::credentials::Gate;
use super::messages::{MAGIC, NOT_TAKEN, Purpose, Side, TAKEN, Talk};
use super::rebuff::Rebuff;
use crate::fabric::sockets::channel::Channel;

/// Proves to a process that listens that this one belongs to the run, and lets it prove the same. Then the
/// connection is encrypted, if both want it.
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
    if !talk.is_proof(&proof, key, Side::Listens) {
        return Err(Rebuff::Impostor);
    }
    let channel = secured(channel, &talk, gate, Side::Connects, deadline)?;
    Ok((channel, talk))
}
