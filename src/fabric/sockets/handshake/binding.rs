//! Binds a proof to an encrypted connection.

use std::time::Instant;

use super::credentials::Gate;
use super::messages::{Side, Talk};
use super::rebuff::Rebuff;
use crate::fabric::sockets::channel::Channel;

/// This connection, encrypted if both sides want it: if only one does, the run refuses it. `side` is this
/// process's. Both ends prove that they are the ends of one session. Somebody in the middle, who passed on
/// what the two said to each other before, has two sessions, and does not have the key.
pub(in crate::fabric::sockets) fn secured(
    channel: Channel,
    talk: &Talk,
    gate: &Gate,
    side: Side,
    deadline: Instant,
) -> Result<Channel, Rebuff> {
    let both = gate.tls && talk.wants_tls(side.other());
    let Some(key) = gate.key(talk.purpose()).filter(|_| both) else {
        return Ok(channel);
    };
    let (channel, session) = channel.encrypted(matches!(side, Side::Connects), deadline)?;
    let key = talk.key(key);
    channel.write_all_before(&key.make(side.proves(), &[&session]), deadline)?;
    let mut proof = [0; Talk::PROOF];
    channel.read_exact_before(&mut proof, deadline)?;
    match key.is_made(&proof, side.other().proves(), &[&session]) {
        true => Ok(channel),
        false => Err(Rebuff::Impostor),
    }
}
